/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of the gradient norm, bound by memory: moves 4·count bytes. The tree has 64 lanes,
 * each the sum of every 64th square in ascending order. Half a warp has a block, and a thread four
 * neighbouring lanes of it, so that loads are of sixteen bytes. */
#include "trainer/cuda/kernels/square_sums.h"

#include "trainer/cuda/kernels/launch.h"
#include "trainer/cuda/kernels/pack.h"
#include "trainer/ops/ops.h"

#define TREE_LANES 64 /* NORM_LANES of the CPU */
#define OWN 4         /* lanes of a thread */
#define AHEAD 16
#define TEAM (TREE_LANES / OWN)
#define THREADS 128
#define TEAMS (THREADS / TEAM)

/* The square of a float is exact in fp64, so this equals the CPU's product and sum. */
template <bool WIDE>
__device__ __forceinline__ void add_squares(double (&lanes)[OWN], const float *x, size_t left)
{
	float values[OWN];
	if (WIDE && left >= OWN)
		load(values, x);
	else
		for (int e = 0; e < OWN; e++)
			values[e] = (size_t)e < left ? x[e] : 0;
	UNROLL
	for (int e = 0; e < OWN; e++)
		lanes[e] = fma((double)values[e], (double)values[e], lanes[e]);
}

/* A whole block: AHEAD loads of a thread are under way at once. */
__device__ __forceinline__ void add_block(double (&lanes)[OWN], const float *x)
{
	static_assert(NORM_BLOCK % (TREE_LANES * AHEAD) == 0, "a block has whole rounds");
	for (int first = 0; first < NORM_BLOCK; first += TREE_LANES * AHEAD) {
		float values[AHEAD][OWN];
		UNROLL
		for (int n = 0; n < AHEAD; n++)
			load(values[n], x + first + n * TREE_LANES);
		UNROLL
		for (int n = 0; n < AHEAD; n++)
			UNROLL
		for (int e = 0; e < OWN; e++)
			lanes[e] = fma((double)values[n][e], (double)values[n][e], lanes[e]);
	}
}

/* x: [count]; sums: [⌈count / NORM_BLOCK⌉] */
template <bool WIDE>
__global__ void LAUNCH_BOUNDS(THREADS)
	square_sums_kernel(double *sums, const float *x, size_t count)
{
	const int member = threadIdx.x % TEAM;
	const size_t block = (size_t)blockIdx.x * TEAMS + threadIdx.x / TEAM,
				 begin = block * NORM_BLOCK;
	double lanes[OWN] = {};
	if (WIDE && begin + NORM_BLOCK <= count)
		add_block(lanes, x + begin + member * OWN);
	else
#pragma unroll 8
		for (size_t at = begin + member * OWN; at < min(begin + NORM_BLOCK, count);
			 at += TREE_LANES)
			add_squares<WIDE>(lanes, x + at, count - at);
	/* Adds the upper half of the lanes to the lower half until one is left. */
	for (int distance = TEAM / 2; distance > 0; distance /= 2)
		UNROLL
	for (int e = 0; e < OWN; e++)
		lanes[e] += __shfl_down_sync(0xffffffffu, lanes[e], distance, TEAM);
	if (member == 0 && begin < count)
		sums[block] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

extern "C" int cuda_square_sums(double *sums, const float *x, size_t count, void *stream)
{
	const size_t blocks = (count + NORM_BLOCK - 1) / NORM_BLOCK;
	auto kernel = is_wide(x) ? square_sums_kernel<true> : square_sums_kernel<false>;
	if (count == 0)
		return 0;
	return LAUNCH(kernel, (unsigned int)((blocks + TEAMS - 1) / TEAMS), THREADS, 0, stream, sums, x,
		count);
}
