/* SPDX-License-Identifier: Apache-2.0 */
/* Removes checkpoints that retention does not keep, and what killed processes left in the
 * checkpoint directory (doc/checkpoint-format.md, section 5.4). */
#ifndef MUSTER_REMOVE_H
#define MUSTER_REMOVE_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* Removes the folder of `step`: renames it, then removes the manifest, then the data. Refuses (-1,
 * EXIT_FAULT) when the owner's token is no longer `token`. Returns 0 when it is removed. Returns 1
 * when it stays, and err has "stays: " and why: it is pinned, it is being read (from ckpt_open to
 * ckpt_close, by any process), no newer checkpoint is whole, or that can't be known (the latter two
 * with EXIT_LOST). */
int remove_step(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err);

/* Removes unfinished saves and removals of other attempts. Only the owner may call it, when it
 * starts. Returns the number removed, or -1. */
int remove_leftovers(const struct ckpt_dir *dir, const char *token, struct err *err);

/* For the owner, once `step` is durable: removes what its own saves up to `step`, and its removals,
 * left because the disk refused to remove it then. Faults are logged. */
void remove_own_leftovers(const struct ckpt_dir *dir, int64_t step, const char *token);

/* Removes `name`, the hidden folder of a save, by renaming it first: when one process commits it
 * while another removes it, exactly one of them succeeds. Returns 1 if it existed, 0 if not, -1 on
 * error. */
int remove_saving(const struct ckpt_dir *dir, const char *name, struct err *err);

/* Removes the folder `name` of `dirfd` with its files. It is no error if the name does not exist,
 * or if NFS keeps a file, and so the folder, while a process has the file open; the next removal of
 * the folder takes both. */
int remove_folder(int dirfd, const char *name, struct err *err);

/* Removes old checkpoints as retention_pick says; call it after a newer one is durable. Faults are
 * logged, not returned, except that the directory has another owner (-1, EXIT_FAULT). */
struct retention;
int remove_expired(const struct ckpt_dir *dir, const struct retention *policy, const char *token,
	struct err *err);

#endif
