/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy, one block a row. The first pass updates the largest logit and the sum of
 * exponentials relative to it as logits come (Milakov and Gimelshein, arXiv 1805.02867); the second
 * pass mostly finds the row in the cache, and writes the gradient. Bound by memory: logits move 16
 * bytes at a time where rows begin at a multiple of that. */
#include "trainer/cuda/kernels/cross_entropy.h"

#include <math.h>

#include "trainer/cuda/kernels/bf16.h"
#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/ptx.h"

#define THREADS 512
#define WARPS (THREADS / 32)
#define LOG2_E 1.4426950408889634f

/* `N` neighbouring logits of a row, as floats. */
template <class E, int N> struct alignas(sizeof(E) * N) logit_group {
	E at[N];
};

/* exp(x - most). bf16 logits, whose own rounding is far coarser, use two instructions. */
__device__ __forceinline__ float relative(float x, float most, float)
{
	return expf(x - most);
}
__device__ __forceinline__ float relative(float x, float most, bf16)
{
	return exp2_approx(fmaf(x, LOG2_E, -LOG2_E * most));
}

struct softmax_part {
	float most, sum; /* largest logit; sum of exponentials relative to it */
};

/* A part without logits is (-inf, 0). */
__device__ __forceinline__ softmax_part joined(softmax_part a, softmax_part b)
{
	float most = fmaxf(a.most, b.most);
	float left = a.most == most ? a.sum : a.sum * expf(a.most - most);
	float right = b.most == most ? b.sum : b.sum * expf(b.most - most);
	return { most, left + right };
}

/* Joins the parts of a block's threads in one fixed order, so that every thread gets the same
 * bits. */
__device__ __forceinline__ softmax_part joined_in_block(softmax_part part)
{
	SHARED(softmax_part, of_warp, WARPS);

	for (int distance = 16; distance > 0; distance /= 2) {
		softmax_part other;
		other.most = __shfl_xor_sync(0xffffffffu, part.most, distance);
		other.sum = __shfl_xor_sync(0xffffffffu, part.sum, distance);
		part = joined(part, other);
	}
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = part;
	__syncthreads();
	part = of_warp[0];
	for (int warp = 1; warp < WARPS; warp++)
		part = joined(part, of_warp[warp]);
	return part;
}

/* This thread's part of a row's softmax. */
template <class E, int N>
__device__ __forceinline__ softmax_part softmax_of_thread(const E *row, int V)
{
	softmax_part part = { -INFINITY, 0 };

#pragma unroll 4
	for (int first = (int)threadIdx.x * N; first < V; first += THREADS * N) {
		logit_group<E, N> group = *(const logit_group<E, N> *)(row + first);
		float x[N], most = part.most;
		UNROLL
		for (int i = 0; i < N; i++)
			x[i] = float_of(group.at[i]);
		if (first + N > V)
			UNROLL
		for (int i = 0; i < N; i++)
			x[i] = first + i < V ? x[i] : -INFINITY;
		UNROLL
		for (int i = 0; i < N; i++)
			most = fmaxf(most, x[i]);
		float sum = part.most == most ? part.sum : part.sum * expf(part.most - most);
		UNROLL
		for (int i = 0; i < N; i++)
			sum += relative(x[i], most, E());
		part = { most, sum };
	}
	return part;
}

/* Replaces a row of logits by its gradient. */
template <class E, int N>
__device__ __forceinline__ void write_gradient(E *row, softmax_part part, int target, float scale,
	int V, int pitch)
{
	const float factor = scale / part.sum;

#pragma unroll 4
	for (int first = (int)threadIdx.x * N; first < pitch; first += THREADS * N) {
		logit_group<E, N> group = *(const logit_group<E, N> *)(row + first);
		float x[N];
		UNROLL
		for (int i = 0; i < N; i++)
			x[i] = relative(float_of(group.at[i]), part.most, E()) * factor;
		if (first <= target && target < first + N)
			UNROLL
		for (int i = 0; i < N; i++)
			x[i] -= first + i == target ? scale : 0.0f;
		if (first + N > V)
			UNROLL
		for (int i = 0; i < N; i++)
			x[i] = first + i < V ? x[i] : 0.0f;
		UNROLL
		for (int i = 0; i < N; i++)
			group.at[i] = of_float<E>(x[i]);
		*(logit_group<E, N> *)(row + first) = group;
	}
}

template <class E, int N> __device__ __forceinline__ void write_zeros(E *row, int pitch)
{
	logit_group<E, N> zeros;

	for (int i = 0; i < N; i++)
		zeros.at[i] = of_float<E>(0.0f);
	for (int first = (int)threadIdx.x * N; first < pitch; first += THREADS * N)
		*(logit_group<E, N> *)(row + first) = zeros;
}

/* losses[M], logits[M,pitch], targets[M]; pitch a multiple of N */
template <class E, int N>
__global__ void LAUNCH_BOUNDS(THREADS) cross_entropy_kernel(float *losses, E *logits,
	const int32_t *targets, const step_params *params, int V, int pitch, bool gradient)
{
	const size_t m = blockIdx.x;
	const int target = targets[m];
	E *row = logits + m * (size_t)pitch;

	if (target < 0) { /* the whole block leaves */
		if (threadIdx.x == 0)
			losses[m] = 0;
		if (gradient)
			write_zeros<E, N>(row, pitch);
		return;
	}
	softmax_part part = joined_in_block(softmax_of_thread<E, N>(row, V));
	if (threadIdx.x == 0)
		losses[m] = part.most + logf(part.sum) - float_of(row[target]);
	if (!gradient)
		return;
	__syncthreads(); /* the target's logit must be read before it is overwritten */
	write_gradient<E, N>(row, part, target, params->loss_scale, V, pitch);
}

template <class E, int N>
static int launch(float *losses, void *logits, const int32_t *targets, const step_params *params,
	size_t M, int V, int pitch, bool gradient, void *stream)
{
	auto kernel = cross_entropy_kernel<E, N>;
	return LAUNCH(kernel, (unsigned int)M, THREADS, 0, stream, losses, (E *)logits, targets, params,
		V, pitch, gradient);
}

extern "C" int cuda_cross_entropy(float *losses, void *logits, const int32_t *targets,
	const step_params *params, size_t M, int V, int pitch, bool gradient, cuda_type type,
	void *stream)
{
	if (M == 0)
		return 0;
	if (type == CUDA_BF16)
		return pitch % 8 == 0
			? launch<bf16, 8>(losses, logits, targets, params, M, V, pitch, gradient, stream)
			: launch<bf16, 1>(losses, logits, targets, params, M, V, pitch, gradient, stream);
	return pitch % 4 == 0
		? launch<float, 4>(losses, logits, targets, params, M, V, pitch, gradient, stream)
		: launch<float, 1>(losses, logits, targets, params, M, V, pitch, gradient, stream);
}
