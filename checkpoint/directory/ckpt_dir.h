/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory: its step folders, how they are listed and set aside
 * (doc/checkpoint-format.md, section 1). */
#ifndef MUSTER_CKPT_DIR_H
#define MUSTER_CKPT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CKPT_STEP_NAME_SIZE 32
#define CKPT_SAVING_PREFIX ".saving-" /* of the hidden folder of a save that is not committed */

/* A value: the open folder and the path it is called by in messages. */
struct ckpt_dir {
	int fd;
	char path[4096];
};

/* Opens `path`, making it and its parents (0755) durably where they are missing, and makes sure
 * that a file can be created in it. The message says what to do; status EXIT_USAGE where the path
 * is at fault, EXIT_LOST where the disk is. */
int ckpt_dir_open(struct ckpt_dir *dir, const char *path, struct err *err);

/* Opens a directory that is there, for reading: nothing is made or tried. Status EXIT_USAGE, or
 * EXIT_LOST where the disk is at fault. */
int ckpt_dir_open_existing(struct ckpt_dir *dir, const char *path, struct err *err);
void ckpt_dir_close(struct ckpt_dir *dir);

/* "step-00001000"; returns `out`. */
char *ckpt_step_name(int64_t step, char out[CKPT_STEP_NAME_SIZE]);

/* -1 unless `name` is exactly what ckpt_step_name makes of some step ≥ 0. */
int64_t ckpt_step_of(const char *name);

/* Steps whose folders exist, whether valid or not, ascending; malloc'ed and the caller's (NULL when
 * there are none). */
int ckpt_dir_steps(const struct ckpt_dir *dir, int64_t **steps, size_t *count, struct err *err);

/* Whether `name` is still the folder that `fd` is. */
bool ckpt_dir_names(const struct ckpt_dir *dir, const char *name, int fd);

/* The manifest of a step, whose files are not looked at. NULL on error, with errno ENOENT when
 * there is none and 0 when it is not valid. */
struct manifest;
struct manifest *ckpt_dir_manifest(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Renames the folder of `step` to step-….damaged-N, the first free N from 1, durably, and logs it
 * as an error. */
int ckpt_dir_set_aside(const struct ckpt_dir *dir, int64_t step, const char *why, struct err *err);

#endif
