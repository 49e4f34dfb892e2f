/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a checkpoint may be removed: not while a process reads it, and not before a newer one is
 * whole (doc/checkpoint-format.md, section 5.4). */
#ifndef MUSTER_REMOVABLE_H
#define MUSTER_REMOVABLE_H

#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* For a reader that has opened the folder `name` and the manifest in it: protects the checkpoint
 * from removal until the manifest is closed, where the file system has locks. -1 (EXIT_LOST) when
 * it is being removed right now. */
int removable_hold(const struct ckpt_dir *dir, const char *name, int folder, int manifest,
	struct err *err);

/* For the removal of the checkpoint of `step`. Returns 1 when it may be removed; then no reader can
 * hold it until *lock is closed (-1: there is no lock), so rename the folder first. Returns 0 when
 * it has to stay, and err says why. */
int removable_check(const struct ckpt_dir *dir, int64_t step, int *lock, struct err *err);

#endif
