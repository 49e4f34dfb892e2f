/* SPDX-License-Identifier: Apache-2.0 */
/* What an earlier service of the same attempt did before it was lost: durable things are not
 * written twice. Were they, a part could be rewritten while the first part's service commits it. */
#ifndef MUSTER_CKPTD_ALREADY_H
#define MUSTER_CKPTD_ALREADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"

/* Whether the step's folder was committed by the owner of `token`, durably. */
bool ckptd_already_committed(const struct ckpt_dir *dir, int64_t step, const char *token);

/* The text (malloc'ed, the caller's) of this part's file if it stands, durably, in the save's
 * hidden folder; else NULL. */
char *ckptd_already_part(const struct ckpt_dir *dir, int64_t step, const char *token, int part,
	int parts, size_t *size);

#endif
