/* SPDX-License-Identifier: Apache-2.0 */
/* All additions of the canonical reduction above the ranks' pieces, in one pass on the GPU: each
 * piece is read once, and the sum is written once. The order is that of tree_additions
 * (order/tree.h), so the bits are those of single additions. */
#ifndef MUSTER_TREE_REDUCE_H
#define MUSTER_TREE_REDUCE_H

#include <stddef.h>

#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COMBINE_MOST OPS_TREE_REDUCE_MAX /* pieces; they travel with the launch */
#define COMBINE_DEPTH 15 /* on the stack: one value a level of a tree of TREE_SLOTS_MAX leaves */

/* Works like a stack: each piece is pushed, then the two on top are added, the lower one first,
 * `additions` times. */
struct cuda_tree_reduce {
	int count;
	struct {
		const float *at; /* in device memory */
		int additions;
	} pieces[COMBINE_MOST];
};

/* out[i] = what is left on element i's stack, for i < count, the elements of each piece; out may be
 * one of the pieces. Queues the kernel and returns 0 or the cudaError_t of the launch. */
int cuda_tree_reduce(float *out, const struct cuda_tree_reduce *tree_reduce, size_t count,
	void *stream);

#ifdef __cplusplus
}
#endif

#endif
