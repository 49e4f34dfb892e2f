/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory and its step folders (doc/checkpoint-format.md, section 1). */
#ifndef MUSTER_CKPT_DIR_H
#define MUSTER_CKPT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CKPT_STEP_NAME_SIZE 32
#define CKPT_SAVING_PREFIX ".saving-" /* prefix of the hidden folder of a pending save */

/* A value: the open folder, and the path that messages call it by. */
struct ckpt_dir {
	int fd;
	char path[4096];
};

/* Opens `path`, creates it and its parents (0755) durably where they are missing, and makes sure
 * that a file can be created in it. On an error the message says what to do; the status is
 * EXIT_USAGE when the path is at fault, EXIT_LOST when the disk is. */
int ckpt_dir_open(struct ckpt_dir *dir, const char *path, struct err *err);

/* Opens an existing directory for reading: creates nothing and tests nothing. Status EXIT_USAGE, or
 * EXIT_LOST when the disk is at fault. */
int ckpt_dir_open_existing(struct ckpt_dir *dir, const char *path, struct err *err);
void ckpt_dir_close(struct ckpt_dir *dir);

/* "step-00001000"; returns `out`. */
char *ckpt_step_name(int64_t step, char out[CKPT_STEP_NAME_SIZE]);

/* The step of a folder's name; -1 unless `name` is exactly what ckpt_step_name makes of some step ≥
 * 0. */
int64_t ckpt_step_of(const char *name);

/* The steps whose folders exist, valid or not, in ascending order; *steps is malloc'ed and the
 * caller's (NULL when there are none). */
int ckpt_dir_steps(const struct ckpt_dir *dir, int64_t **steps, size_t *count, struct err *err);

/* Whether `name` still refers to the open folder `fd`. */
bool ckpt_dir_names(const struct ckpt_dir *dir, const char *name, int fd);

/* Reads the manifest of a step, but none of its files. NULL on error, with errno ENOENT when there
 * is no manifest and 0 when it is not valid. Freed by manifest_destroy. */
struct manifest;
struct manifest *ckpt_dir_manifest(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Renames the folder of `step` to step-….damaged-N, with the first free N from 1, durably, and logs
 * that as an error. */
int ckpt_dir_set_aside(const struct ckpt_dir *dir, int64_t step, const char *why, struct err *err);

#endif
