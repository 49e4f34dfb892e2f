/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fakes/fake_pinned.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "tests/fakes/fake_runtime.h"
#include "tests/fakes/fake_stream.h"

#define RANGES 256
#define PAGE 4096

static struct range {
	uintptr_t first, end;
} ranges[RANGES];

bool fake_pinned_has(const void *p, size_t bytes)
{
	bool has = false;
	fake_stream_lock();
	for (const struct range *range = ranges; range < ranges + RANGES; range++)
		has = has || (range->first <= (uintptr_t)p && (uintptr_t)p + bytes <= range->end);
	fake_stream_unlock();
	return has;
}

/* No page is registered twice. */
static cudaError_t add(struct range range)
{
	struct range *place = NULL;
	for (struct range *other = ranges; other < ranges + RANGES; other++) {
		if (other->end == 0)
			place = other;
		else if (range.first / PAGE < (other->end + PAGE - 1) / PAGE
			&& other->first / PAGE < (range.end + PAGE - 1) / PAGE)
			return cudaErrorHostMemoryAlreadyRegistered;
	}
	if (!place)
		return cudaErrorMemoryAllocation;
	*place = range;
	fake_runtime.registered += range.end - range.first;
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
	cudaError_t error =
		flags == cudaHostRegisterDefault && bytes > 0 ? cudaSuccess : cudaErrorInvalidValue;
	fake_stream_lock();
	if (fake_runtime.registers_fail && fake_runtime.registers_left-- <= 0)
		error = (cudaError_t)fake_runtime.registers_fail;
	if (error == cudaSuccess)
		error = add((struct range) { (uintptr_t)p, (uintptr_t)p + bytes });
	fake_stream_unlock();
	return error;
}

cudaError_t cudaHostUnregister(void *p)
{
	cudaError_t error = cudaErrorHostMemoryNotRegistered;
	fake_stream_wait(NULL);
	fake_stream_lock();
	for (struct range *range = ranges; range < ranges + RANGES; range++)
		if (range->end && range->first == (uintptr_t)p) {
			fake_runtime.registered -= range->end - range->first;
			*range = (struct range) { 0 };
			error = cudaSuccess;
		}
	fake_stream_unlock();
	return error;
}
