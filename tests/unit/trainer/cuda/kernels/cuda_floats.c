/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for tests of kernels. */
#include "config.h"

#include "tests/unit/trainer/cuda/kernels/cuda_floats.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "tests/shim/device.h"

static void *get(size_t count, size_t size)
{
	void *p = malloc((count ? count : 1) * size);
	assert_non_null(p);
	return p;
}

void cuda_floats_round(float *x, size_t count, enum cuda_type type)
{
	for (size_t i = 0; type == CUDA_BF16 && i < count; i++)
		x[i] = bytes_bf16_to_float(bytes_float_to_bf16(x[i]));
}

float *cuda_floats(size_t count, float scale, uint32_t seed, enum cuda_type type)
{
	float *x = get(count, sizeof *x);
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525u + 1013904223u;
		x[i] = scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
	}
	cuda_floats_round(x, count, type);
	return x;
}

void *cuda_floats_packed(const float *x, size_t count, enum cuda_type type)
{
	void *elements = get(count, sizeof *x);
	uint16_t *narrow = elements;
	if (type == CUDA_FP32)
		return memcpy(elements, x, count * sizeof *x);
	for (size_t i = 0; i < count; i++)
		narrow[i] = bytes_float_to_bf16(x[i]);
	return elements;
}

void *cuda_floats_to_device(const float *x, size_t count, enum cuda_type type)
{
	void *elements = cuda_floats_packed(x, count, type);
	void *device = device_copy(elements, count * cuda_type_bytes(type));
	free(elements);
	return device;
}

float *cuda_floats_of(const void *elements, size_t count, enum cuda_type type)
{
	float *x = get(count, sizeof *x);
	for (size_t i = 0; i < count; i++)
		x[i] = type == CUDA_BF16 ? bytes_bf16_to_float(((const uint16_t *)elements)[i])
								 : ((const float *)elements)[i];
	return x;
}
