/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a snapshot as ATTACH carries it: offsets into a buffer instead of pointers. */
#ifndef MUSTER_CKPTD_ATTACH_H
#define MUSTER_CKPTD_ATTACH_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/format/snapshot_memory.h"
#include "checkpoint/protocol/ckptd_fields.h"
#include "common/err.h"

struct ckptd_tensor {
	const char *name;
	enum safetensors_dtype dtype;
	int dims;
	int64_t shape[SAFETENSORS_DIMS];
	int64_t writer;
	int64_t offset; /* in a buffer, in bytes; or CKPTD_NO_OFFSET */
};

struct ckptd_slice {
	int64_t tensor; /* index into the tensors */
	int64_t first, count;
	int64_t writer;
	int64_t offset[SNAPSHOT_STATES]; /* in a buffer, in bytes; all or none are CKPTD_NO_OFFSET */
};

struct ckptd_attach {
	const char *token, *path;
	int64_t attempt, world_size;
	uint64_t seed;
	const char *config, *numerics, *model;
	int64_t part, parts, shard_size;
	int64_t keep_last, keep_every, keep_best;
	int64_t buffers, buffer_bytes, umask;
	const char *host; /* of part 0 when there are several, else NULL */
	int64_t port;
	const char *secret; /* of part 0 when there are several, else NULL */
	const char *first;  /* of parts other than 0, else NULL */
	struct ckptd_tensor *tensors;
	struct ckptd_slice *slices;
	size_t tensor_count, slice_count;
};

/* Checks what single members can't show: every tensor and slice is in the buffer, aligned, and a
 * slice is in its tensor; names, parts and addresses are consistent. 0, or -1 with status
 * EXIT_DATA. */
int ckptd_attach_check(const struct ckptd_attach *attach, struct err *err);

/* Fills in the tensors, slices and other members of `attach` that describe the snapshot, whose
 * pointers must point into buffer 0 of `memory`. Texts are borrowed; the caller frees the two
 * arrays. -1 with err set when a pointer is outside the buffer. */
int ckptd_attach_describe(struct ckptd_attach *attach, const struct snapshot *snapshot,
	const struct snapshot_memory *memory, struct err *err);

/* The reverse: a snapshot whose data is in the buffer at `base`. Its texts are borrowed from
 * `attach`; ckptd_attach_free releases its arrays. */
int ckptd_attach_snapshot(const struct ckptd_attach *attach, const void *base,
	struct snapshot *snapshot, struct err *err);
void ckptd_attach_free(struct snapshot *snapshot);

#endif
