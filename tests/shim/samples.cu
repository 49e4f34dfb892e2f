/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for the tests of the shim. */
#include "tests/shim/samples.h"

#include "trainer/cuda/kernels/launch.h"

#define ALL 0xffffffffu
#define MOST 1024

__global__ void tree_sum(float *out, const float *in)
{
	SHARED(float, partial, MOST);
	unsigned int i = threadIdx.x;
	partial[i] = in[(size_t)blockIdx.x * blockDim.x + i];
	for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
		__syncthreads();
		if (i < half)
			partial[i] += partial[i + half];
	}
	if (i == 0)
		out[blockIdx.x] = partial[0];
}

int sample_tree_sum(float *out, const float *in, unsigned int blocks, unsigned int threads)
{
	return LAUNCH(tree_sum, blocks, threads, 0, NULL, out, in);
}

__device__ __forceinline__ float warp_sum_of(float x)
{
	for (int lanes = warpSize / 2; lanes > 0; lanes /= 2)
		x += __shfl_xor_sync(ALL, x, lanes);
	return x;
}

template <int width> __global__ void LAUNCH_BOUNDS(MOST) warp_sum(float *out, const float *in)
{
	SHARED_DYNAMIC(float, sums);
	unsigned int i = threadIdx.x, warps = blockDim.x / width;
	float sum = warp_sum_of(in[(size_t)blockIdx.x * blockDim.x + i]);
	if (i % width == 0)
		sums[i / width] = sum;
	__syncthreads();
	if (i < width) {
		sum = warp_sum_of(i < warps ? sums[i] : 0);
		if (i == 0)
			out[blockIdx.x] = sum;
	}
}

int sample_warp_sum(float *out, const float *in, unsigned int blocks, unsigned int threads)
{
	return LAUNCH(warp_sum<32>, blocks, threads, threads / 32 * sizeof(float), NULL, out, in);
}

__global__ void numbers(uint32_t *out)
{
	uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
	uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
	uint32_t number = block * blockDim.x * blockDim.y * blockDim.z + thread;
	out[number] = number;
}

int sample_numbers(uint32_t *out, const unsigned int grid[3], const unsigned int block[3])
{
	return LAUNCH(numbers, dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), 0,
		NULL, out);
}

__global__ void shuffles(uint32_t *out, int operand, int width)
{
	uint32_t i = threadIdx.x, *mine = out + 4 * i;
	mine[0] = __shfl_sync(ALL, i, operand, width);
	mine[1] = __shfl_up_sync(ALL, i, (unsigned int)operand, width);
	mine[2] = __shfl_down_sync(ALL, i, (unsigned int)operand, width);
	mine[3] = (uint32_t)__shfl_xor_sync(ALL, (double)i, operand, width);
}

int sample_shuffles(uint32_t *out, unsigned int threads, int operand, int width)
{
	return LAUNCH(shuffles, 1, threads, 0, NULL, out, operand, width);
}

__global__ void votes(uint32_t *out)
{
	uint32_t i = threadIdx.x, *mine = out + 6 * i;
	unsigned int mask = i % 2 ? 0xaaaaaaaau : 0x55555555u;
	mine[0] = __ballot_sync(mask, i % 3 == 0);
	mine[1] = (uint32_t)__any_sync(mask, i % 64 == 1);
	mine[2] = (uint32_t)__all_sync(mask, i % 2);
	mine[3] = (uint32_t)__syncthreads_or(i == 5);
	mine[4] = (uint32_t)__syncthreads_and(i != 5);
	mine[5] = (uint32_t)__syncthreads_count(i % 3 == 0);
}

int sample_votes(uint32_t *out, unsigned int threads)
{
	return LAUNCH(votes, 1, threads, 0, NULL, out);
}

__global__ void atomics(unsigned int *counts)
{
	atomicAdd(&counts[0], 1u);
	atomicMax(&counts[1], blockIdx.x * blockDim.x + threadIdx.x);
}

int sample_atomics(unsigned int *counts, unsigned int blocks, unsigned int threads)
{
	return LAUNCH(atomics, blocks, threads, 0, NULL, counts);
}

__global__ void neighbour(float *out, const float *in, bool barrier)
{
	SHARED(float, tile, MOST);
	unsigned int i = threadIdx.x;
	tile[i] = in[i];
	if (barrier)
		__syncthreads();
	out[i] = tile[i > 0 ? i - 1 : 0];
}

int sample_neighbour(float *out, const float *in, unsigned int threads, bool barrier)
{
	return LAUNCH(neighbour, 1, threads, 0, NULL, out, in, barrier);
}

__global__ void neighbour_warp(float *out, const float *in, bool barrier)
{
	SHARED(float, tile, MOST);
	unsigned int i = threadIdx.x;
	tile[i] = in[i];
	if (barrier)
		__syncwarp();
	else
		__shfl_sync(ALL, i, 0); /* waits for all lanes, but does not make their writes seen */
	out[i] = tile[i % warpSize > 0 ? i - 1 : i];
}

int sample_neighbour_warp(float *out, const float *in, unsigned int threads, bool barrier)
{
	return LAUNCH(neighbour_warp, 1, threads, 0, NULL, out, in, barrier);
}

__global__ void arrival(unsigned int *out, unsigned int *counter)
{
	out[atomicAdd(counter, 1u)] = threadIdx.x;
}

int sample_arrival(unsigned int *out, unsigned int *counter, unsigned int threads)
{
	return LAUNCH(arrival, 1, threads, 0, NULL, out, counter);
}

__global__ void blocks_share(float *out)
{
	if (blockIdx.x == 0)
		out[threadIdx.x] = 1;
	else
		out[blockDim.x + threadIdx.x] = out[blockDim.x - 1 - threadIdx.x];
}

int sample_blocks_share(float *out, unsigned int threads)
{
	return LAUNCH(blocks_share, 2, threads, 0, NULL, out);
}

__global__ void early_exit(unsigned int leaver)
{
	if (threadIdx.x == leaver)
		return;
	__syncthreads();
}

int sample_early_exit(unsigned int threads, unsigned int leaver)
{
	return LAUNCH(early_exit, 1, threads, 0, NULL, leaver);
}

__global__ void early_exit_warp(unsigned int leaver)
{
	if (threadIdx.x == leaver)
		return;
	__shfl_sync(ALL, threadIdx.x, 0);
}

int sample_early_exit_warp(unsigned int leaver)
{
	return LAUNCH(early_exit_warp, 1, 32, 0, NULL, leaver);
}

__global__ void deadlock()
{
	if (threadIdx.x == 0)
		__syncwarp();
	__syncthreads();
}

int sample_deadlock(unsigned int threads)
{
	return LAUNCH(deadlock, 1, threads, 0, NULL);
}

__global__ void two_barriers()
{
	if (threadIdx.x == 0)
		__syncthreads();
	else
		__syncthreads_or(1);
}

int sample_two_barriers(unsigned int threads)
{
	return LAUNCH(two_barriers, 1, threads, 0, NULL);
}

__global__ void masks(uint32_t first, uint32_t others)
{
	__shfl_sync(threadIdx.x == 0 ? first : others, threadIdx.x, (int)(threadIdx.x % warpSize));
}

int sample_masks(unsigned int threads, uint32_t first, uint32_t others)
{
	return LAUNCH(masks, 1, threads, 0, NULL, first, others);
}

__global__ void unwritten(float *out)
{
	SHARED(float, tile, MOST);
	if (threadIdx.x == 0)
		tile[0] = 1;
	__syncthreads();
	out[threadIdx.x] = tile[threadIdx.x];
}

int sample_unwritten(float *out, unsigned int threads)
{
	return LAUNCH(unwritten, 1, threads, 0, NULL, out);
}

__global__ void shared_past_end(float *out)
{
	SHARED_DYNAMIC(float, tile);
	tile[threadIdx.x] = 1;
	__syncthreads();
	out[threadIdx.x] = tile[threadIdx.x + 1];
}

int sample_shared_past_end(float *out, unsigned int threads)
{
	return LAUNCH(shared_past_end, 1, threads, threads * sizeof(float), NULL, out);
}

__global__ void past_end(float *out, const float *in)
{
	out[threadIdx.x] = in[threadIdx.x + 1];
}

int sample_past_end(float *out, const float *in, unsigned int threads)
{
	return LAUNCH(past_end, 1, threads, 0, NULL, out, in);
}

__global__ void far(float *out, bool narrow)
{
	unsigned int low = blockIdx.x * blockDim.x + threadIdx.x;
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	out[narrow ? low : i] = 1;
}

int sample_far(float *out, size_t count, bool narrow)
{
	return LAUNCH(far, (unsigned int)(count / 256), 256, 0, NULL, out, narrow);
}

__global__ void much_shared()
{
	SHARED(double, most, 48 * 1024 / sizeof(double));
	SHARED_DYNAMIC(char, more);
	most[threadIdx.x] = 0;
	more[threadIdx.x] = (char)most[threadIdx.x];
}

int sample_too_much_shared(size_t dynamic_bytes)
{
	return LAUNCH(much_shared, 1, 1, dynamic_bytes, NULL);
}
