/* SPDX-License-Identifier: Apache-2.0 */
/* ATTACH: what all saves of a client have in common. */
#ifndef MUSTER_CKPTD_ATTACH_H
#define MUSTER_CKPTD_ATTACH_H

#include <stdint.h>

#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"

struct ckptd_attach {
	const char *token, *path;
	int64_t attempt, world_size;
	uint64_t seed;
	int64_t part, parts, shard_size;
	int64_t keep_last, keep_every, keep_best;
	int64_t buffers, buffer_bytes, umask;
	const char *host; /* of part 0 when there are several, else NULL */
	int64_t port;
	const char *secret; /* of part 0 when there are several, else NULL */
	const char *first;  /* of parts other than 0, else NULL */
};

/* Checks what single members can't show: parts and addresses are consistent. 0, or -1 with status
 * EXIT_DATA. */
int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err);

/* Fills in the members that describe the memory, and those of the snapshot that are the same in all
 * saves. */
void ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory);

#endif
