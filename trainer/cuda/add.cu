/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise addition. Bound by memory: a thread takes neighbours of its neighbours', so loads are coalesced. */
#include "trainer/cuda/add.h"

#include "trainer/cuda/launch.h"

#define THREADS 256u
#define BLOCKS_MOST 4096u /* beyond that a thread takes several elements */

/* out, a, b: [count] */
__global__ void add_kernel(float *out, const float *a, const float *b, size_t count)
{
	size_t stride = (size_t)gridDim.x * blockDim.x;
	for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
		out[i] = a[i] + b[i];
}

extern "C" int cuda_add(float *out, const float *a, const float *b, size_t count, void *stream)
{
	size_t blocks = (count + THREADS - 1) / THREADS;
	if (count == 0)
		return 0;
	return LAUNCH(add_kernel, blocks < BLOCKS_MOST ? (unsigned int)blocks : BLOCKS_MOST, THREADS, 0, stream, out, a, b, count);
}
