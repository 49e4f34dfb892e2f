/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the tests where kernels run on a GPU. */
#include "config.h"

#include "tests/shim/device.h"

#include <cuda_runtime.h>

const char *device_missing(void)
{
	int devices = 0;
	cudaError_t error = cudaGetDeviceCount(&devices);
	return error != cudaSuccess ? cudaGetErrorString(error)
		: devices == 0          ? "none is visible"
								: NULL;
}

static void check(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		fail_msg("couldn't %s: %s", what, cudaGetErrorString(error));
}

void *device_make(size_t bytes)
{
	void *memory = NULL;
	check(cudaMalloc(&memory, bytes ? bytes : 1), "allocate on the GPU");
	device_poison(memory, bytes);
	return memory;
}

void *device_make_sparse(size_t bytes)
{
	return NULL;
}

void device_read(void *host, const void *device, size_t bytes)
{
	check(cudaDeviceSynchronize(), "run the kernels");
	check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "copy from the GPU");
}

void device_write(void *device, const void *host, size_t bytes)
{
	check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "copy to the GPU");
}

void device_poison(void *device, size_t bytes)
{
	check(cudaMemset(device, 0xff, bytes), "poison memory of the GPU");
}
void device_free(void *device)
{
	check(cudaFree(device), "free memory of the GPU");
}
void device_free_sparse(void *device, size_t bytes) {}

int device_orders(void)
{
	return 1;
}
bool device_watched(void)
{
	return false;
}
void device_order(int order) {}
void device_only_blocks(uint64_t first, uint64_t count) {}
