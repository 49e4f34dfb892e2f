/* SPDX-License-Identifier: Apache-2.0 */
/* A save that is not committed yet: its hidden folder, and the rename that makes it a checkpoint
 * (doc/checkpoint-format.md, section 5). */
#ifndef MUSTER_PENDING_SAVE_H
#define MUSTER_PENDING_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/format/manifest.h"
#include "common/err.h"

#define PENDING_SAVE_NAME_SIZE (CKPT_STEP_NAME_SIZE + 64)

struct pending_save {
	const struct ckpt_dir *dir; /* borrowed */
	int64_t step;
	char name[CKPT_STEP_NAME_SIZE];      /* that the checkpoint will have */
	char hidden[PENDING_SAVE_NAME_SIZE]; /* .saving-step-…-TOKEN */
	int fd;                              /* of the hidden folder; -1: not open */
};

/* Only fills in the names. */
void pending_save_init(struct pending_save *saving, const struct ckpt_dir *dir, int64_t step,
	const char *token);

/* Makes and opens the folder. `fresh`: what stands there is removed before; else it may be there.
 */
int pending_save_make(struct pending_save *saving, bool fresh, struct err *err);

/* Opens a folder that should be there. Returns 1, 0 if there is none, -1 on error. */
int pending_save_open(struct pending_save *saving, struct err *err);
void pending_save_close(struct pending_save *saving);

/* Removes the folder, by renaming it first: whoever renames it to a checkpoint at the same moment
 * either has it whole or not at all. One that is not there is no error. */
int pending_save_discard(const struct pending_save *saving, struct err *err);

/* The same for who has an error already: a failure is logged. */
void pending_save_give_up(const struct pending_save *saving);

/* Puts a text durably into the folder and makes the names in it durable. */
int pending_save_put(const struct pending_save *saving, const char *name, const char *text,
	size_t size, struct err *err);

/* Renames the folder, whose manifest is `text`, and makes that durable, if `token` owns the
 * directory. *taken: a valid checkpoint has the name already, and the folder was removed. On an
 * error the folder stays. */
int pending_save_commit(const struct pending_save *saving, const char *text, size_t size,
	const char *token, bool *taken, struct err *err);

#endif
