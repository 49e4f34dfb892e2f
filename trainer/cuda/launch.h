/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels are launched: by nvcc's syntax, or on the host for tests where there is no GPU, thread after thread.
 * For .cu files only. On the host a kernel without barriers gives what it gives on the GPU. */
#ifndef MUSTER_CUDA_LAUNCH_H
#define MUSTER_CUDA_LAUNCH_H

#include <stddef.h>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define LAUNCH(kernel, blocks, threads, stream, ...) \
	(kernel<<<(blocks), (threads), 0, (cudaStream_t)(stream)>>>(__VA_ARGS__), (int)cudaGetLastError())

#else

struct host_dim {
	unsigned int x;
};

static host_dim blockIdx, blockDim, gridDim, threadIdx;

#define __global__ static

template <typename F> static int host_launch(unsigned int blocks, unsigned int threads, F body)
{
	gridDim.x = blocks;
	blockDim.x = threads;
	for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
			body();
	return 0;
}

#define LAUNCH(kernel, blocks, threads, stream, ...) ((void)(stream), host_launch((blocks), (threads), [&] { kernel(__VA_ARGS__); }))

#endif

#endif
