/* SPDX-License-Identifier: Apache-2.0 */
/* A save that is not committed: its hidden folder, and the rename that makes it a checkpoint
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
	char name[CKPT_STEP_NAME_SIZE];      /* name of the future checkpoint */
	char hidden[PENDING_SAVE_NAME_SIZE]; /* .saving-step-…-TOKEN */
	int fd;                              /* the hidden folder; -1: not open */
};

/* Sets the names; does not touch the disk. */
void pending_save_init(struct pending_save *saving, const struct ckpt_dir *dir, int64_t step,
	const char *token);

/* Creates and opens the folder. With `fresh`, an existing one is removed before; otherwise it is
 * used. */
int pending_save_make(struct pending_save *saving, bool fresh, struct err *err);

/* Opens an existing folder. Returns 1, 0 if there is none, -1 on error. */
int pending_save_open(struct pending_save *saving, struct err *err);
void pending_save_close(struct pending_save *saving);

/* Removes the folder, by renaming it first: a process that commits it at the same moment gets it
 * whole or not at all. No error if it does not exist. */
int pending_save_discard(const struct pending_save *saving, struct err *err);

/* The same for a caller that already has an error: a failure is only logged. */
void pending_save_give_up(const struct pending_save *saving);

/* Writes a text durably into the folder and makes the folder's names durable. */
int pending_save_put(const struct pending_save *saving, const char *name, const char *text,
	size_t size, struct err *err);

/* Renames the folder, whose manifest is `text`, and makes that durable, if `token` owns the
 * directory. *taken: a valid checkpoint already had the name, and the folder was removed. On an
 * error the folder stays. */
int pending_save_commit(const struct pending_save *saving, const char *text, size_t size,
	const char *token, bool *taken, struct err *err);

#endif
