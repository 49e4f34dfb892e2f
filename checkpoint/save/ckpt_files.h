/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a snapshot: which there are over all its parts, and the bytes of those that this
 * part writes (doc/checkpoint-format.md, section 2). A pure function of the snapshot. */
#ifndef MUSTER_CKPT_FILES_H
#define MUSTER_CKPT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/snapshot.h"
#include "checkpoint/save/shard_write.h"
#include "common/err.h"

struct ckpt_file {
	char name[64];
	enum manifest_role role;
	uint64_t size;
	struct shard_piece *pieces; /* owned; what they point to is the snapshot's, but for the first */
	size_t count;
	char *text; /* the first piece; owned */
};

struct ckpt_files {
	struct ckpt_file *files;
	size_t count;
};

/* The files of snapshot->part, in the order of the manifest. The snapshot is checked: EXIT_FAULT
 * says what is wrong. */
int ckpt_files_plan(const struct snapshot *snapshot, struct ckpt_files *files, struct err *err);
void ckpt_files_free(struct ckpt_files *files);

#endif
