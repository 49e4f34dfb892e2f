/* SPDX-License-Identifier: Apache-2.0 */
/* The device of the tests where kernels run on the host. */
#include "config.h"

#include "tests/shim/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/shim/fiber.h"
#include "tests/shim/grid.h"

#define ALIGNMENT 256 /* cudaMalloc's */

const char *device_missing(void)
{
	return NULL;
}

void *device_make(size_t bytes)
{
	void *memory = NULL;
	if (posix_memalign(&memory, ALIGNMENT, bytes))
		fail_msg("couldn't allocate %zu bytes", bytes);
	device_poison(memory, bytes);
	return memory;
}

void *device_make_sparse(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

void device_read(void *host, const void *device, size_t bytes)
{
	if (bytes)
		memcpy(host, device, bytes);
}

void device_write(void *device, const void *host, size_t bytes)
{
	if (bytes)
		memcpy(device, host, bytes);
}

void device_poison(void *device, size_t bytes)
{
	memset(device, 0xff, bytes);
}
void device_free(void *device)
{
	free(device);
}
void device_free_sparse(void *device, size_t bytes)
{
	munmap(device, bytes);
}

int device_orders(void)
{
	return FIBER_EACH_THREAD ? 1 : GRID_ORDERS;
}
bool device_watched(void)
{
	return FIBER_EACH_THREAD;
}
void device_order(int order)
{
	grid_order(order);
}
void device_only_blocks(uint64_t first, uint64_t count)
{
	grid_only(first, count);
}
