/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver as far as a rank asks it which card it has, for machines without one:
 * libcuda.so.1 for a program that finds it by LD_LIBRARY_PATH. The environment says what it shows:
 *     FAKE_GPUS=N              cards of this machine (1)
 *     CUDA_VISIBLE_DEVICES     as the true one reads it: those that the process sees (all)
 *     FAKE_GPU_NAME=TEXT       (NVIDIA H200)
 *     FAKE_GPU_CAPABILITY=N    times ten (90)
 *     FAKE_GPU_MEMORY=BYTES    (2^40)
 *     FAKE_GPU_CUDA=N          the CUDA version that the driver supports (that of its header)
 *     FAKE_GPU_ERROR=N         what cuInit returns (0)
 */
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS_MOST 64

static long long number(const char *name, long long otherwise)
{
	return getenv(name) ? strtoll(getenv(name), NULL, 10) : otherwise;
}

/* The cards that this process sees, and how many: the first that there is not ends the list. */
static int visible(int cards[CARDS_MOST])
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int all = (int)number("FAKE_GPUS", 1), count = 0;
	for (; !list && count < all && count < CARDS_MOST; count++)
		cards[count] = count;
	while (list && *list >= '0' && *list <= '9' && count < CARDS_MOST) {
		char *end;
		long card = strtol(list, &end, 10);
		if (card >= all)
			break;
		cards[count++] = (int)card;
		list = *end == ',' ? end + 1 : "";
	}
	return count;
}

CUresult cuInit(unsigned int flags)
{
	int cards[CARDS_MOST];
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (number("FAKE_GPU_ERROR", 0))
		return (CUresult)number("FAKE_GPU_ERROR", 0);
	return visible(cards) ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
	*version = (int)number("FAKE_GPU_CUDA", CUDA_VERSION);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
	int cards[CARDS_MOST];
	*count = visible(cards);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int index)
{
	int cards[CARDS_MOST];
	if (index < 0 || index >= visible(cards))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = cards[index];
	return CUDA_SUCCESS;
}

/* Another one for each card of each machine. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
	memset(uuid->bytes, 0, sizeof uuid->bytes);
	gethostname(uuid->bytes + 1, sizeof uuid->bytes - 2);
	uuid->bytes[0] = (char)(device + 1);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
	const char *given = getenv("FAKE_GPU_NAME");
	snprintf(name, (size_t)size, "%s", given ? given : "NVIDIA H200");
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
	*bytes = (size_t)number("FAKE_GPU_MEMORY", 1LL << 40);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	int capability = (int)number("FAKE_GPU_CAPABILITY", 90);
	switch ((int)attribute) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = capability / 10;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
		*value = capability % 10;
		return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name =
		error == CUDA_ERROR_SYSTEM_NOT_READY ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_UNKNOWN";
	return CUDA_SUCCESS;
}
