/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of the canonical reduction, bound by memory: moves 4·count·(pieces + 1) bytes, while one
 * addition after another would move 12·count bytes each. */
#include "trainer/cuda/kernels/tree_reduce.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"

#define THREADS 256
/* Deep enough for COMBINE_MOST pieces of one size, with half the registers of COMBINE_DEPTH. */
#define SHALLOW 8

/* Entry 0 is the top of the stack, and the others move, so that each entry stays in registers and
 * none needs an address. */
template <int P, int DEPTH>
__device__ __forceinline__ void push(float (&stack)[DEPTH][P], const float (&value)[P])
{
	UNROLL
	for (int d = DEPTH - 1; d > 0; d--)
		UNROLL
	for (int e = 0; e < P; e++)
		stack[d][e] = stack[d - 1][e];
	UNROLL
	for (int e = 0; e < P; e++)
		stack[0][e] = value[e];
}

template <int P, int DEPTH> __device__ __forceinline__ void merge(float (&stack)[DEPTH][P])
{
	UNROLL
	for (int e = 0; e < P; e++)
		stack[0][e] = stack[1][e] + stack[0][e];
	UNROLL
	for (int d = 1; d < DEPTH - 1; d++)
		UNROLL
	for (int e = 0; e < P; e++)
		stack[d][e] = stack[d + 1][e];
}

/* out and each piece: [count] */
template <int P, int DEPTH>
__global__ void LAUNCH_BOUNDS(THREADS)
	tree_reduce_kernel(float *out, const struct cuda_tree_reduce tree_reduce, size_t count)
{
	const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) * P;
	float stack[DEPTH][P] = {}, value[P];
	if (i >= count)
		return;
#pragma unroll 4
	for (int n = 0; n < tree_reduce.count; n++) {
		load_upto(value, tree_reduce.pieces[n].at + i, count - i);
		push(stack, value);
		for (int additions = tree_reduce.pieces[n].additions; additions > 0; additions--)
			merge(stack);
	}
	store_upto(out + i, stack[0], count - i);
}

static int depth_of(const struct cuda_tree_reduce *tree_reduce)
{
	int depth = 0, most = 0;
	for (int n = 0; n < tree_reduce->count; n++) {
		if (++depth > most)
			most = depth;
		depth -= tree_reduce->pieces[n].additions;
	}
	return most;
}

template <int P> static auto kernel_of(int depth)
{
	return depth <= SHALLOW ? tree_reduce_kernel<P, SHALLOW> : tree_reduce_kernel<P, COMBINE_DEPTH>;
}

extern "C" int cuda_tree_reduce(float *out, const struct cuda_tree_reduce *tree_reduce,
	size_t count, void *stream)
{
	bool wide = is_wide(out);
	for (int n = 0; n < tree_reduce->count; n++)
		wide = wide && is_wide(tree_reduce->pieces[n].at);
	const int depth = depth_of(tree_reduce);
	auto kernel = wide ? kernel_of<4>(depth) : kernel_of<1>(depth);
	const size_t own = THREADS * (wide ? 4 : 1);
	if (count == 0)
		return 0;
	return LAUNCH(kernel, (unsigned int)((count + own - 1) / own), THREADS, 0, stream, out,
		*tree_reduce, count);
}
