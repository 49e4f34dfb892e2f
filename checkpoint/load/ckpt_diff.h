/* SPDX-License-Identifier: Apache-2.0 */
/* Two checkpoints, compared value by value. */
#ifndef MUSTER_CKPT_DIFF_H
#define MUSTER_CKPT_DIFF_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/load/ckpt.h"
#include "common/err.h"

/* How two arrays of equal shape differ. */
struct ckpt_difference {
	bool same;          /* bit by bit */
	uint64_t differing; /* elements whose bits differ */
	double absolute;    /* largest |a - b|; INFINITY where one of them is no number */
	double relative;    /* largest |a - b| / max(|a|, |b|) */
};

/* Takes `count` more elements into account: a pure function. Elements that are the same bits do not
 * differ, also NaN; -0 and 0 differ, by 0. Begin with {.same = true}. */
void ckpt_diff_floats(struct ckpt_difference *difference, const float *a, const float *b,
	size_t count);

enum ckpt_diff_kind {
	CKPT_DIFF_COMPARED, /* `difference` holds */
	CKPT_DIFF_ONLY_A,
	CKPT_DIFF_ONLY_B, /* the other has none */
	CKPT_DIFF_SHAPE,  /* another shape */
	CKPT_DIFF_NONE,   /* neither has one: optimizer states of a model without */
};

#define CKPT_DIFF_PARTS (1 + SNAPSHOT_STATES) /* the weights, then the states in their order */

/* What was found of one tensor. */
struct ckpt_tensor_diff {
	const char *name;
	bool dtypes_differ; /* of the weights: then they are not the same, whatever the values */
	enum ckpt_diff_kind kind[CKPT_DIFF_PARTS];
	struct ckpt_difference difference[CKPT_DIFF_PARTS];
};

/* Whether everything about the tensor is the same in both. */
bool ckpt_diff_same(const struct ckpt_tensor_diff *diff);

/* Called for each tensor that either has, by name; non-zero ends the comparison with that value. */
typedef int ckpt_diff_tensor(void *arg, const struct ckpt_tensor_diff *diff);

/* Compares all tensors and states. `progress` (may be NULL) hears of the bytes read of both.
 * Returns 0, -1 or CKPT_DAMAGED. */
int ckpt_diff(struct ckpt *a, struct ckpt *b, ckpt_diff_tensor *tensor,
	void (*progress)(void *arg, uint64_t bytes), void *arg, struct err *err);

/* Bytes that such a comparison reads of one of them. */
uint64_t ckpt_diff_bytes(const struct ckpt *ckpt);

/* The places where two JSON values differ: an array of {"name": "identity.layers", "a": …, "b": …}
 * in which a side without the member is missing. NULL when out of memory. */
json_t *ckpt_diff_json(const json_t *a, const json_t *b);

#endif
