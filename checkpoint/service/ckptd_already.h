/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what an earlier service of the same attempt finished before it was lost, so that nothing
 * durable is written twice. Otherwise a part could be rewritten while part 0's service commits
 * it. */
#ifndef MUSTER_CKPTD_ALREADY_H
#define MUSTER_CKPTD_ALREADY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"

/* Whether the owner with `token` has committed the step's folder, durably. */
bool ckptd_already_committed(const struct ckpt_dir *dir, int64_t step, const char *token);

/* The text of this part's file (malloc'ed, the caller's) if the file is durable in the save's
 * hidden folder; else NULL. */
char *ckptd_already_part(const struct ckpt_dir *dir, int64_t step, const char *token, int part,
	int parts, size_t *size);

#endif
