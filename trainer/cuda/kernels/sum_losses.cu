/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of losses, bound by latency: there are so few that one block of threads adds them. Each
 * thread adds a run of LOSS_BLOCK in index order, and one thread adds the threads' sums in
 * order. */
#include "trainer/cuda/kernels/sum_losses.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"
#include "trainer/ops/ops.h"

#define THREADS 256

template <int P>
__device__ __forceinline__ double sum_of_run(const float *losses, size_t begin, size_t end)
{
	double sum = 0;
#pragma unroll 8
	for (size_t at = begin; at < end; at += P) {
		float values[P];
		load_upto(values, losses + at, end - at);
		UNROLL
		for (int e = 0; e < P; e++)
			sum += (double)values[e]; /* after the end it adds 0, which changes nothing */
	}
	return sum;
}

/* losses: [count] */
template <int P>
__global__ void LAUNCH_BOUNDS(THREADS)
	sum_losses_kernel(double *sum, const float *losses, size_t count, int accumulate)
{
	SHARED(double, sums, THREADS);
	const size_t step = (size_t)THREADS * LOSS_BLOCK;
	double all = 0;
	for (size_t first = 0; first < count; first += step) {
		const size_t begin = first + (size_t)threadIdx.x * LOSS_BLOCK;
		sums[threadIdx.x] = sum_of_run<P>(losses, begin, min(begin + LOSS_BLOCK, count));
		__syncthreads();
		if (threadIdx.x == 0)
			for (int t = 0; t < THREADS && first + (size_t)t * LOSS_BLOCK < count; t++)
				all += sums[t];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		*sum = accumulate ? *sum + all : all;
}

extern "C" int cuda_sum_losses(double *sum, const float *losses, size_t count, int accumulate,
	void *stream)
{
	auto kernel = is_wide(losses) ? sum_losses_kernel<4> : sum_losses_kernel<1>;
	return LAUNCH(kernel, 1, THREADS, 0, stream, sum, losses, count, accumulate);
}
