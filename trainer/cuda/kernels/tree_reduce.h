/* SPDX-License-Identifier: Apache-2.0 */
/* All additions of the canonical reduction above the ranks' pieces in one pass on the GPU: each
 * piece is read once, the sum is written once. The order is that of tree_additions (order/tree.h),
 * so the bits are those of additions one by one. */
#ifndef MUSTER_TREE_REDUCE_H
#define MUSTER_TREE_REDUCE_H

#include <stddef.h>

#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COMBINE_MOST OPS_TREE_REDUCE_MAX /* pieces: they travel with the launch */
#define COMBINE_DEPTH \
	13 /* values on the stack: they are of different levels of the tree, \
and it has TREE_SLOTS_MAX leaves */

/* A stack: each piece is pushed, then the two on top are added, the lower one first, `merges`
 * times. */
struct cuda_tree_reduce {
	int count;
	struct {
		const float *at; /* in the device's memory */
		int additions;
	} pieces[COMBINE_MOST];
};

/* out[i] = what is left on the stack of element i, for i < count of them in each piece; out may be
 * one of the pieces. Returns at once, with 0 or the cudaError_t of the launch. */
int cuda_tree_reduce(float *out, const struct cuda_tree_reduce *tree_reduce, size_t count,
	void *stream);

#ifdef __cplusplus
}
#endif

#endif
