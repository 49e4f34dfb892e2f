/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_add: the bits of the CPU's addition, on the host's shim everywhere and on the GPU where one is. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUDA
#include <cuda_runtime.h>
#endif

#include "trainer/cuda/add.h"

#define MOST 1100000 /* more than the most blocks have threads */

int host_cuda_add(float *out, const float *a, const float *b, size_t count, void *stream);

static float left[MOST + 2], right[MOST + 2], expected[MOST + 2], result[MOST + 2];
static const size_t counts[] = { 0, 1, 2, 31, 32, 33, 255, 256, 257, 65537, 1048575, 1048576, 1048577, MOST };

/* Any bits but those of a NaN, whose payload is the processor's choice: denormals, infinities and both zeros too. */
static int fill(void **state)
{
	static const uint32_t special[] = { 0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff,
		0x7f800000, 0x3f800000, 0x33800000, 0xbf800000 };
	uint32_t bits = 1;
	for (size_t i = 0; i < MOST + 2; i++) {
		float *const pair[2] = { &left[i], &right[i] };
		for (int k = 0; k < 2; k++) {
			bits = bits * 1664525 + 1013904223;
			uint32_t value = i < 144 ? special[k ? i / 12 : i % 12] : bits;
			if ((value & 0x7f800000) == 0x7f800000 && value != 0x7f800000)
				value &= 0xbfffffff;
			memcpy(pair[k], &value, sizeof value);
		}
	}
	return 0;
}

static void expect(const float *a, const float *b, size_t count)
{
	for (size_t i = 0; i < MOST + 2; i++)
		expected[i] = -7; /* what lies behind the elements stays as it was */
	for (size_t i = 0; i < count; i++)
		expected[i] = a[i] + b[i];
}

static void host_has_the_bits_of_the_cpu(void **state)
{
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		expect(left, right + 1, counts[c]);
		for (size_t i = 0; i < MOST + 2; i++)
			result[i] = -7;
		assert_int_equal(host_cuda_add(result, left, right + 1, counts[c], NULL), 0);
		assert_memory_equal(result, expected, sizeof result);
		memcpy(result, left, sizeof left);
		memcpy(expected + counts[c], left + counts[c], (MOST + 2 - counts[c]) * sizeof *left);
		assert_int_equal(host_cuda_add(result, result, right + 1, counts[c], NULL), 0);
		assert_memory_equal(result, expected, sizeof result);
	}
}

#ifdef HAVE_CUDA
static void check_on_gpu(float *device[3], size_t count)
{
	/* The second operand lies at an odd element: nothing may rely on more than 4 bytes of alignment. */
	expect(left, right + 1, count);
	for (size_t i = 0; i < MOST + 2; i++)
		result[i] = -7;
	assert_int_equal(cudaMemcpy(device[0], result, sizeof result, cudaMemcpyHostToDevice), cudaSuccess);
	assert_int_equal(cuda_add(device[0], device[1], device[2] + 1, count, NULL), 0);
	assert_int_equal(cudaMemcpy(result, device[0], sizeof result, cudaMemcpyDeviceToHost), cudaSuccess);
	assert_memory_equal(result, expected, sizeof result);
	memcpy(expected + count, left + count, (MOST + 2 - count) * sizeof *left);
	assert_int_equal(cudaMemcpy(device[0], left, sizeof left, cudaMemcpyHostToDevice), cudaSuccess);
	assert_int_equal(cuda_add(device[0], device[0], device[2] + 1, count, NULL), 0);
	assert_int_equal(cudaMemcpy(result, device[0], sizeof result, cudaMemcpyDeviceToHost), cudaSuccess);
	assert_memory_equal(result, expected, sizeof result);
}
#endif

/* Why the GPU cannot be used, or NULL. */
static const char *missing_gpu(void)
{
#ifdef HAVE_CUDA
	int devices = 0;
	cudaError_t error = cudaGetDeviceCount(&devices);
	return error != cudaSuccess ? cudaGetErrorString(error) : devices == 0 ? "none is visible" : NULL;
#else
	return "this build has no CUDA";
#endif
}

static void gpu_has_the_bits_of_the_cpu(void **state)
{
	if (missing_gpu())
		skip();
#ifdef HAVE_CUDA
	float *device[3];
	for (int i = 0; i < 3; i++)
		assert_int_equal(cudaMalloc((void **)&device[i], sizeof left), cudaSuccess);
	assert_int_equal(cudaMemcpy(device[1], left, sizeof left, cudaMemcpyHostToDevice), cudaSuccess);
	assert_int_equal(cudaMemcpy(device[2], right, sizeof right, cudaMemcpyHostToDevice), cudaSuccess);
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
		check_on_gpu(device, counts[c]);
	for (int i = 0; i < 3; i++)
		cudaFree(device[i]);
#endif
}

int main(void)
{
	/* A skipped test says why in its name: that is all that cmocka prints of it. */
	char name[300];
	const char *why = missing_gpu();
	snprintf(name, sizeof name, "gpu_has_the_bits_of_the_cpu%s%s", why ? ": no GPU: " : "", why ? why : "");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_has_the_bits_of_the_cpu),
		{ .name = name, .test_func = gpu_has_the_bits_of_the_cpu },
	};
	return cmocka_run_group_tests(tests, fill, NULL);
}
