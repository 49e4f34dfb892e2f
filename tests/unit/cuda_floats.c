/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for tests of kernels. */
#include "config.h"

#include "tests/unit/cuda_floats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"

/* To nearest, ties to even. */
static uint16_t rounded(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widened(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

float *cuda_floats(size_t count, float scale, uint32_t seed, enum cuda_type type)
{
	float *x = malloc((count ? count : 1) * sizeof *x);

	assert_non_null(x);
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525u + 1013904223u;
		x[i] = scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
		x[i] = type == CUDA_BF16 ? widened(rounded(x[i])) : x[i];
	}
	return x;
}

void *cuda_floats_to_device(const float *x, size_t count, enum cuda_type type)
{
	uint16_t *narrow = malloc((count ? count : 1) * sizeof *narrow);
	void *device;

	assert_non_null(narrow);
	for (size_t i = 0; i < count; i++)
		narrow[i] = rounded(x[i]);
	device = type == CUDA_BF16 ? device_copy(narrow, count * sizeof *narrow) : device_copy(x, count * sizeof *x);
	free(narrow);
	return device;
}

float *cuda_floats_of(const void *elements, size_t count, enum cuda_type type)
{
	float *x = malloc((count ? count : 1) * sizeof *x);

	assert_non_null(x);
	for (size_t i = 0; i < count; i++)
		x[i] = type == CUDA_BF16 ? widened(((const uint16_t *)elements)[i]) : ((const float *)elements)[i];
	return x;
}
