/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory: its step folders, how they are listed, set aside and removed
 * (doc/checkpoint-format.md, section 1). */
#ifndef MUSTER_CKPT_DIR_H
#define MUSTER_CKPT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define CKPT_STEP_NAME_SIZE 32

/* A value: the open folder and the path it is called by in messages. */
struct ckpt_dir {
	int fd;
	char path[4096];
};

/* Opens `path`, making it and its parents (0755) durably where they are missing, and makes sure that a file can be
 * created in it. The message says what to do; status EXIT_USAGE where the path is at fault, EXIT_LOST where the disk is. */
int ckpt_dir_open(struct ckpt_dir *dir, const char *path, struct err *err);

/* Opens a directory that is there, for reading: nothing is made or tried. Status EXIT_USAGE, or EXIT_LOST where the disk is at
 * fault. */
int ckpt_dir_open_existing(struct ckpt_dir *dir, const char *path, struct err *err);
void ckpt_dir_close(struct ckpt_dir *dir);

/* "step-00001000"; returns `out`. */
char *ckpt_step_name(int64_t step, char out[CKPT_STEP_NAME_SIZE]);

/* -1 unless `name` is exactly what ckpt_step_name makes of some step ≥ 0. */
int64_t ckpt_step_of(const char *name);

/* Steps whose folders exist, whether valid or not, ascending; malloc'ed and the caller's (NULL when there are none). */
int ckpt_dir_steps(const struct ckpt_dir *dir, int64_t **steps, size_t *count, struct err *err);

/* Whether `name` is still the folder that `fd` is. */
bool ckpt_dir_names(const struct ckpt_dir *dir, const char *name, int fd);

/* The manifest of a step, whose files are not looked at. NULL on error, with errno ENOENT when
 * there is none and 0 when it is not valid. */
struct manifest;
struct manifest *ckpt_dir_manifest(const struct ckpt_dir *dir, int64_t step, struct err *err);

/* Renames the folder of `step` to step-….damaged-N, the first free N from 1, durably, and logs it as an error. */
int ckpt_dir_set_aside(const struct ckpt_dir *dir, int64_t step, const char *why, struct err *err);

/* Removes the folder of `step`: renamed out of the way, then manifest first, then data. Refuses (EXIT_FAULT) when the
 * owner's token is no longer `token`. Returns 1 when it stays, and err says why: it is pinned, it is being read (ckpt_open to
 * ckpt_close, by any process), or no newer one is whole. */
int ckpt_dir_remove(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err);

/* Removes unfinished saves and removals of other attempts. Only the owner may call it, at start. Returns how many were
 * removed, or -1. */
int ckpt_dir_clean(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Behind a durable `step`, by the owner only: removes what saves of his up to it, and removals, have left where the disk refused
 * to remove it then. Faults are logged. */
void ckpt_dir_tidy(const struct ckpt_dir *dir, int64_t step, const char *token);

/* Removes `name`, the hidden folder of a save, by renaming it first: of two processes that meet over it, one that commits it
 * and one that removes it, exactly one has it. Returns 1 if it was there, 0 if not, -1 on error. */
int ckpt_dir_take_away(const struct ckpt_dir *dir, const char *name, struct err *err);

/* Removes the folder `name` of `dirfd` with its files. A name that is not there is no error, and neither is a file that NFS
 * keeps, and its folder with it, while a process has it open; the next removal of the folder takes them. */
int ckpt_remove_folder(int dirfd, const char *name, struct err *err);

/* Removes old checkpoints as retention_pick says, after a newer one is durable. Faults are logged, not returned,
 * except that the directory is no longer ours (-1, EXIT_FAULT). */
struct retention;
int ckpt_dir_retain(const struct ckpt_dir *dir, const struct retention *policy, const char *token, struct err *err);

#endif
