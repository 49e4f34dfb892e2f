/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: a snapshot becomes a durable checkpoint, or nothing that a reader would take for one
 * (doc/checkpoint-format.md, section 5). */
#ifndef MUSTER_CKPT_SAVE_H
#define MUSTER_CKPT_SAVE_H

#include <stdbool.h>

#include "checkpoint/ckpt_dir.h"
#include "checkpoint/snapshot.h"
#include "common/err.h"

struct ckpt_saved {
	uint64_t bytes;    /* written, of all files */
	double seconds;    /* from the first system call to the commit */
	bool taken;        /* a valid checkpoint of this step was there already; ours was discarded */
};

/* Writes `snapshot` in .saving-step-…-TOKEN/, makes it durable and commits it by renaming the folder. On an error (the
 * disk is full, an I/O error: EXIT_LOST; the directory has another owner: EXIT_FAULT; the snapshot is wrong:
 * EXIT_FAULT) nothing is renamed, the temporary folder is removed, and the checkpoints that are there stay. The
 * caller may go on and save again later. `saved` may be NULL. */
int ckpt_save(const struct ckpt_dir *dir, const struct snapshot *snapshot, const char *token,
	struct ckpt_saved *saved, struct err *err);

#endif
