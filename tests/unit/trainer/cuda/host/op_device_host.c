/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/trainer/cuda/host/op_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/fakes/fake_cublas.h"
#include "trainer/cuda/host/ops_cuda.h"

struct ops *op_device_create(enum gemm_mode mode)
{
	static const struct gpu gpu = { .name = "Fake", .capability = 90, .processors = 132 };
	struct err err = { 0 };
	struct ops *ops = ops_cuda_create_over(&fake_cublas_library, &gpu, mode, &err);
	if (!ops)
		fail_msg("%s", err.text);
	return ops;
}

bool op_device_is_gpu(void)
{
	return false;
}
int op_device_times(void)
{
	return 6;
}
size_t op_device_noise(void)
{
	return (size_t)1 << 16;
}

struct op_sizes op_device_full_size(void)
{
	return (struct op_sizes) { .B = 2,
		.T = 24,
		.C = 32,
		.H = 2,
		.V = 150,
		.F = 128,
		.P = 3 * NORM_BLOCK };
}
