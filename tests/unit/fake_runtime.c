/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_runtime.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 256 /* bytes in front of memory, which tell its size */

struct fake_runtime fake_runtime;

static void *get(size_t bytes)
{
	char *memory = aligned_alloc(HEAD, HEAD + (bytes + HEAD - 1) / HEAD * HEAD);
	*(size_t *)(void *)memory = bytes;
	memset(memory + HEAD, 0xff, bytes);
	fake_runtime.used += bytes;
	fake_runtime.peak = fake_runtime.used > fake_runtime.peak ? fake_runtime.used : fake_runtime.peak;
	return memory + HEAD;
}

static void give_back(void *p)
{
	char *memory = p ? (char *)p - HEAD : NULL;
	fake_runtime.used -= memory ? *(size_t *)(void *)memory : 0;
	free(memory);
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	if (fake_runtime.most && fake_runtime.used + bytes > fake_runtime.most)
		return cudaErrorMemoryAllocation;
	*p = get(bytes);
	return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
	give_back(p);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	*p = get(bytes);
	return flags == cudaHostAllocDefault ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaFreeHost(void *p) { return cudaFree(p); }

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	memset(p, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	if (fake_runtime.copies_fail)
		return (cudaError_t)fake_runtime.copies_fail;
	memcpy(to, from, bytes);
	return stream && (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all)
{
	*all = fake_runtime.most ? fake_runtime.most : (size_t)1 << 40;
	*available = *all - fake_runtime.used;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	*stream = (cudaStream_t)malloc(1);
	fake_runtime.streams++;
	return flags == cudaStreamNonBlocking ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	free(stream);
	fake_runtime.streams--;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	fake_runtime.waits++;
	return stream ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return device < 1 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetLastError(void) { return cudaSuccess; }
const char *cudaGetErrorString(cudaError_t error) { return error == cudaErrorLaunchFailure ? "unspecified launch failure" : "an error"; }
const char *cudaGetErrorName(cudaError_t error) { return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaErrorFake"; }
