/* SPDX-License-Identifier: Apache-2.0 */
/* Removing from the checkpoint directory: checkpoints that retention lets go, and what killed
 * processes left (doc/checkpoint-format.md, section 5.4). */
#ifndef MUSTER_REMOVE_H
#define MUSTER_REMOVE_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* Removes the folder of `step`: renamed out of the way, then manifest first, then data. Refuses
 * (EXIT_FAULT) when the owner's token is no longer `token`. Returns 1 when it stays, and err says
 * why: it is pinned, it is being read (ckpt_open to ckpt_close, by any process), or no newer one is
 * whole. */
int remove_step(const struct ckpt_dir *dir, int64_t step, const char *token, struct err *err);

/* Removes unfinished saves and removals of other attempts. Only the owner may call it, at start.
 * Returns how many were removed, or -1. */
int remove_leftovers(const struct ckpt_dir *dir, const char *token, struct err *err);

/* Behind a durable `step`, by the owner only: removes what saves of his up to it, and removals,
 * have left where the disk refused to remove it then. Faults are logged. */
void remove_own_leftovers(const struct ckpt_dir *dir, int64_t step, const char *token);

/* Removes `name`, the hidden folder of a save, by renaming it first: of two processes that meet
 * over it, one that commits it and one that removes it, exactly one has it. Returns 1 if it was
 * there, 0 if not, -1 on error. */
int remove_saving(const struct ckpt_dir *dir, const char *name, struct err *err);

/* Removes the folder `name` of `dirfd` with its files. A name that is not there is no error, and
 * neither is a file that NFS keeps, and its folder with it, while a process has it open; the next
 * removal of the folder takes them. */
int remove_folder(int dirfd, const char *name, struct err *err);

/* Removes old checkpoints as retention_pick says, after a newer one is durable. Faults are logged,
 * not returned, except that the directory is no longer ours (-1, EXIT_FAULT). */
struct retention;
int remove_expired(const struct ckpt_dir *dir, const struct retention *policy, const char *token,
	struct err *err);

#endif
