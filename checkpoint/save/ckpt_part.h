/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a save by several writers: their files' names and texts, and the manifest that
 * follows from them (doc/checkpoint-format.md, section 5.2). Pure functions. */
#ifndef MUSTER_CKPT_PART_H
#define MUSTER_CKPT_PART_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "common/err.h"

#define CKPT_PART_NAME_SIZE 64

/* "part-00001-of-00004.json" of part 0; returns `out`. */
char *ckpt_part_name(int part, int parts, char out[CKPT_PART_NAME_SIZE]);

/* The number of parts that a name of that kind tells of; 0 for any other name. */
int ckpt_part_count(const char *name);

/* Whether the text is part `part` (from 0) of `parts` of the save of `step` by the owner of
 * `token`: a pure function that trusts nothing. The message says what is wrong (EXIT_DATA). */
int ckpt_part_check(const char *text, size_t size, int64_t step, const char *token, int part,
	int parts, struct err *err);

/* The manifest of the save of which these are all parts, in their order. NULL when they are not:
 * EXIT_DATA says why. */
struct manifest *ckpt_part_join(char *const *texts, const size_t *sizes, int parts, int64_t step,
	const char *token, struct err *err);

#endif
