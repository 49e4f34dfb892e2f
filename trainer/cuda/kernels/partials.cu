/* SPDX-License-Identifier: Apache-2.0 */
/* The last stage of sums over rows. It moves little, so its speed depends on how many loads are in
 * flight at once: 32 threads share the parts of a column, and their sums are added in order. */
#include "trainer/cuda/kernels/partials.h"

#include "trainer/cuda/kernels/launch.h"

#define COLUMNS 32
#define RUNS 32 /* runs of parts, each one thread's */

/* partials: [count][pair][C]; block (x, k) adds columns [32·x, 32·(x+1)) into first (k = 0) or
 * second [C] */
__global__ void LAUNCH_BOUNDS(COLUMNS *RUNS) partials_fold_kernel(float *first, float *second,
	const float *partials, int count, int C, int accumulate)
{
	SHARED(float, sums, RUNS *COLUMNS);
	const int column = threadIdx.x % COLUMNS, run = threadIdx.x / COLUMNS,
			  parts = (count + RUNS - 1) / RUNS;
	const size_t c = (size_t)blockIdx.x * COLUMNS + column, stride = (size_t)gridDim.y * C;
	float *const out = blockIdx.y == 0 ? first : second;
	float sum = 0;
	if (c < (size_t)C)
#pragma unroll 8
		for (int p = run * parts; p < min((run + 1) * parts, count); p++)
			sum += partials[p * stride + (size_t)blockIdx.y * C + c];
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (run > 0 || c >= (size_t)C)
		return;
	sum = accumulate ? out[c] : 0;
	for (int r = 0; r < RUNS; r++)
		sum += sums[r * COLUMNS + column];
	out[c] = sum;
}

extern "C" int cuda_partials_fold(float *const out[2], const float *partials, int count, int pair,
	int C, int accumulate, void *stream)
{
	const dim3 grid((unsigned int)((C + COLUMNS - 1) / COLUMNS), (unsigned int)pair);
	return LAUNCH(partials_fold_kernel, grid, COLUMNS * RUNS, 0, stream, out[0],
		pair > 1 ? out[1] : out[0], partials, count, C, accumulate);
}
