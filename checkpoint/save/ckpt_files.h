/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a snapshot: which files all its parts have together, and the bytes of those that
 * this part writes (doc/checkpoint-format.md, section 2). A pure function of the snapshot. */
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
	struct shard_piece *pieces; /* owned; all but the first point into the snapshot */
	size_t count;
	char *text; /* the first piece's data; owned */
};

struct ckpt_files {
	struct ckpt_file *files;
	size_t count;
};

/* Lists the files of snapshot->part, in the order of the manifest. Checks the snapshot first: -1
 * with EXIT_FAULT says what is wrong. Freed by ckpt_files_free. */
int ckpt_files_plan(const struct snapshot *snapshot, struct ckpt_files *files, struct err *err);
void ckpt_files_free(struct ckpt_files *files);

#endif
