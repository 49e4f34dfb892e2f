/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are stored in boxes: what several processes have of one tensor, each its own ranges
 * of indices (doc/checkpoint-format.md, section 2.4). */
#ifndef MUSTER_BOXES_H
#define MUSTER_BOXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/snapshot.h"
#include "common/err.h"

#define BOXES_MAX 16384 /* of one tensor */

/* The elements of a tensor whose index in each dimension d is in [offset[d], offset[d] + size[d]).
 * A whole tensor is the box with its own shape at offset 0. */
struct box {
	const char *tensor; /* its name */
	enum safetensors_dtype dtype;
	int dims;
	int64_t shape[SAFETENSORS_DIMS]; /* of the whole tensor */
	int64_t offset[SAFETENSORS_DIMS], size[SAFETENSORS_DIMS];
	const void *owner; /* the caller's own */
};

/* Whether it is all of its tensor. */
bool box_is_whole(const struct box *box);

/* The first of the tensor's dimensions in which [offset, offset + size) is not within its shape;
 * -1: the box is in the tensor. */
int box_outside(int dims, const int64_t *shape, const int64_t *offset, const int64_t *size);

/* Sorts the boxes by the names of their tensors, and checks that the boxes of each tensor have one
 * dtype and shape and cover it exactly once. -1 with EXIT_DATA names the first tensor for which
 * that does not hold. */
int boxes_check(struct box *boxes, size_t count, struct err *err);

/* The same of a snapshot's tensors, each of which has to be there once, whole or in boxes. -1 also
 * when out of memory. */
int boxes_check_tensors(const struct snapshot_tensor *tensors, size_t count, struct err *err);

/* Receives `count` elements that lie together in the box, from its element `first` on; in the whole
 * tensor they begin at element `at`. Elements are counted in row-major order. A result other than 0
 * ends the walk. */
typedef int box_run(void *arg, const struct box *box, uint64_t first, uint64_t count, uint64_t at);

/* Calls `run` for all of the box's elements that are in [first, first + count) of the whole tensor.
 * Returns its last result. */
int box_runs(const struct box *box, uint64_t first, uint64_t count, box_run *run, void *arg);

/* Calls `run` for all elements that two boxes of one tensor have in common; its `at` counts the
 * elements of `wanted`. Returns its last result. */
int box_common(const struct box *box, const struct box *wanted, box_run *run, void *arg);

#endif
