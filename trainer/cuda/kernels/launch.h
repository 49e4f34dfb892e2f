/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels are written and launched. nvcc compiles them for the GPU, and any C++ compiler for
 * the host, through the tests' shim (doc/cuda-shim.md). For .cu files only.
 *
 *  - LAUNCH(kernel, grid, block, shared_bytes, stream, arguments...) returns 0 or the cudaError_t
 *    of the launch; grid and block are dim3 or numbers, stream is a void *. Asks for more than 48
 *    KiB of dynamic shared memory where needed.
 *  - SHARED(type, name, count), in a kernel: a static array that the threads of a block share.
 *  - SHARED_DYNAMIC(type, name), in a kernel: the shared_bytes of its launch, aligned to 16 bytes.
 *  - LAUNCH_BOUNDS(threads), before a kernel's name: its blocks have no more threads.
 *  - UNROLL, before a loop of constant length. */
#ifndef MUSTER_CUDA_LAUNCH_H
#define MUSTER_CUDA_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#define LANES 32 /* threads in a warp */

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#define SHARED(type, name, count) __shared__ type name[count]
#define SHARED_DYNAMIC(type, name) \
	extern __shared__ uint4 launch_dynamic[]; \
	type *const name = reinterpret_cast<type *>(launch_dynamic)
#define UNROLL _Pragma("unroll")

/* Dynamic shared memory that a kernel may use without asking for it. */
#define LAUNCH_SHARED_PLAIN ((size_t)48 << 10)

template <typename... P, typename... A>
static int launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
	void *stream, A... arguments)
{
	if (shared_bytes > LAUNCH_SHARED_PLAIN) {
		cudaError_t error = cudaFuncSetAttribute((const void *)kernel,
			cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
		if (error != cudaSuccess)
			return (int)error;
	}
	kernel<<<grid, block, shared_bytes, (cudaStream_t)stream>>>(arguments...);
	return (int)cudaGetLastError();
}

#else

#include <cuda_shim.h> /* tests/shim/ */

#define LAUNCH_BOUNDS(threads)
#define UNROLL

#endif

#define LAUNCH(...) launch_kernel(__VA_ARGS__)

#endif
