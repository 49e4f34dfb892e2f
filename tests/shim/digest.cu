/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/shim/digest.h"

#include "trainer/cuda/kernels/launch.h"

#define THREADS 128
#define WORDS 16 /* of a thread, where there are blocks enough */
#define BLOCKS 2048u

/* The finaliser of splitmix64. */
__device__ __forceinline__ unsigned long long mixed(unsigned long long x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* The place is mixed by itself first: words and places that change together do not meet. */
__device__ __forceinline__ unsigned long long placed(size_t place, uint32_t word)
{
	return mixed(mixed((unsigned long long)place + 0x9e3779b97f4a7c15ull) ^ word);
}

/* The last bytes, which are no whole word; their number is part of it. */
__device__ __forceinline__ unsigned long long tail_of(const unsigned char *bytes, size_t count)
{
	uint32_t word = (uint32_t)(count % 4) << 24;
	for (size_t i = 0; i < count % 4; i++)
		word |= (uint32_t)bytes[count / 4 * 4 + i] << 8 * i;
	return placed(count / 4, word);
}

__global__ void LAUNCH_BOUNDS(THREADS)
	digest_kernel(unsigned long long *out, const unsigned char *bytes, size_t count)
{
	const uint32_t *words = (const uint32_t *)bytes;
	size_t first = (size_t)blockIdx.x * THREADS + threadIdx.x;
	unsigned long long sum = 0;
	for (size_t i = first; i < count / 4; i += (size_t)gridDim.x * THREADS)
		sum += placed(i, words[i]);
	if (first == 0)
		sum += tail_of(bytes, count);
	atomicAdd(out, sum);
}

int digest(uint64_t *out, const void *memory, size_t bytes, void *stream)
{
	size_t blocks = (bytes / 4 + THREADS * WORDS - 1) / (THREADS * WORDS);
	unsigned int grid = blocks == 0 ? 1 : blocks < BLOCKS ? (unsigned int)blocks : BLOCKS;
	return LAUNCH(digest_kernel, grid, THREADS, 0, stream, (unsigned long long *)out,
		(const unsigned char *)memory, bytes);
}
