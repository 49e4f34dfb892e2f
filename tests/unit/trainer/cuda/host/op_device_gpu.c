/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/trainer/cuda/host/op_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "trainer/cuda/host/device_cuda.h"
#include "trainer/cuda/host/ops_cuda.h"

struct ops *op_device_create(enum gemm_mode mode)
{
	const struct ident ident = { .world_size = 1, .local_world_size = 1, .node_count = 1 };
	struct gpu_driver driver;
	struct gpu gpu;
	struct err err = { 0 };
	uint64_t available;
	struct ops *ops = NULL;
	if (gpu_driver_load(&driver, &err) == 0
		&& gpu_choose(&driver, &ident, device_cuda_runtime(), true, &gpu, &err) == 0
		&& device_cuda_begin(&gpu, &available, &err) == 0)
		ops = ops_cuda_create(&gpu, mode, &err);
	if (!ops)
		fail_msg("%s", err.text);
	return ops;
}

bool op_device_is_gpu(void)
{
	return true;
}
int op_device_times(void)
{
	return 100;
}
size_t op_device_noise(void)
{
	return (size_t)64 << 20;
}

struct op_sizes op_device_full_size(void)
{
	const char *batch = getenv("MUSTER_TEST_BATCH");
	return (struct op_sizes) { .B = batch ? atoi(batch) : 32,
		.T = 1024,
		.C = 768,
		.H = 12,
		.V = 50257,
		.F = 3072,
		.P = 124475904 };
}
