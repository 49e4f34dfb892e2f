/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a save by several writers: their file names and texts, and the manifest made from
 * them (doc/checkpoint-format.md, section 5.2). Pure functions. */
#ifndef MUSTER_CKPT_PART_H
#define MUSTER_CKPT_PART_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"

#define CKPT_PART_NAME_SIZE 64

/* The file name of a part, such as "part-00001-of-00004.json" for part 0; returns `out`. */
char *ckpt_part_name(int part, int parts, char out[CKPT_PART_NAME_SIZE]);

/* The number of parts according to such a name; 0 for any other name. */
int ckpt_part_count(const char *name);

/* The hash of what all parts of a save have to plan their files from: the lists of tensors and
 * slices, who writes them, and the size of a shard. -1 when out of memory. */
int ckpt_part_plan(const struct snapshot *snapshot, char out[HASH_HEX_SIZE], struct err *err);

/* Checks that the text is part `part` (from 0) of `parts` of the save of `step` by the owner with
 * `token`. A pure function that trusts nothing. 0, or -1 with EXIT_DATA and what is wrong. */
int ckpt_part_check(const char *text, size_t size, int64_t step, const char *token, int part,
	int parts, struct err *err);

/* Makes the manifest of a save from the texts of all its parts, in their order. NULL with EXIT_DATA
 * when they don't form one save; err says why. */
struct manifest *ckpt_part_join(char *const *texts, const size_t *sizes, int parts, int64_t step,
	const char *token, struct err *err);

#endif
