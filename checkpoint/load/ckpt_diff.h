/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two checkpoints value by value. */
#ifndef MUSTER_CKPT_DIFF_H
#define MUSTER_CKPT_DIFF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/load/ckpt.h"
#include "common/err.h"

/* The difference between two arrays of equal shape. */
struct ckpt_difference {
	bool same;          /* all bits are equal */
	uint64_t differing; /* elements whose bits differ */
	double absolute;    /* largest |a - b|; INFINITY where one of them is not finite */
	double relative;    /* largest |a - b| / max(|a|, |b|) */
};

/* Adds `count` more elements to the difference, as a pure function. Elements with the same bits do
 * not differ, even if they are NaN; -0 and 0 differ, by 0. Begin with {.same = true}. */
void ckpt_diff_floats(struct ckpt_difference *difference, const float *a, const float *b,
	size_t count);

enum ckpt_diff_kind {
	CKPT_DIFF_COMPARED, /* `difference` is valid */
	CKPT_DIFF_ONLY_A,
	CKPT_DIFF_ONLY_B, /* only one of the two has it */
	CKPT_DIFF_SHAPE,  /* their shapes differ */
	CKPT_DIFF_TYPE,   /* their types differ, and are not both floating point */
	CKPT_DIFF_NONE,   /* neither has it: optimizer states of a model without an optimizer */
};

#define CKPT_DIFF_PARTS (1 + SNAPSHOT_STATES) /* the weights, then the states in their order */

/* The comparison of one tensor. */
struct ckpt_tensor_diff {
	const char *name;
	bool dtypes_differ; /* the weights' dtypes; if they differ, the tensors are not the same,
						   whatever the values */
	enum ckpt_diff_kind kind[CKPT_DIFF_PARTS];
	struct ckpt_difference difference[CKPT_DIFF_PARTS];
};

/* Whether everything about the tensor is the same in both. */
bool ckpt_diff_same(const struct ckpt_tensor_diff *diff);

/* Called for each tensor that either checkpoint has, in order of names. A non-zero result ends the
 * comparison, which returns it. */
typedef int ckpt_diff_tensor(void *arg, const struct ckpt_tensor_diff *diff);

/* Compares all tensors and states. `progress` (may be NULL) is called with the bytes read of either
 * checkpoint. Returns 0, -1 or CKPT_DAMAGED. */
int ckpt_diff(struct ckpt *a, struct ckpt *b, ckpt_diff_tensor *tensor,
	void (*progress)(void *arg, uint64_t bytes), void *arg, struct err *err);

/* The bytes that a comparison reads of this checkpoint. */
uint64_t ckpt_diff_bytes(const struct ckpt *ckpt);

/* Lists where two JSON values differ: an array of {"name": "identity.layers", "a": …, "b": …}. A
 * side that lacks the member has no "a" or "b". NULL when out of memory. */
json_t *ckpt_diff_json(const json_t *a, const json_t *b);

#endif
