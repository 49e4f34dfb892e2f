/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint as users name it: by its own folder, or by the checkpoint directory. */
#ifndef MUSTER_CKPT_PLACE_H
#define MUSTER_CKPT_PLACE_H

#include <stdbool.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

/* A checkpoint folder, of any name, and the directory that holds it. */
struct ckpt_place {
	struct ckpt_dir dir;
	char name[256];
};

/* Opens the checkpoint that `path` names: a step folder, or a checkpoint directory. In a directory,
 * `step` chooses the checkpoint ("1000" or "step-00001000"; NULL: the newest). -1 with status
 * EXIT_USAGE when there is none. */
int ckpt_place_open(struct ckpt_place *place, const char *path, const char *step, struct err *err);
void ckpt_place_close(struct ckpt_place *place);

/* Whether `path` itself is a checkpoint folder: it has a manifest, or its name is that of a
 * step. */
bool ckpt_place_is_step(const char *path);

#endif
