/* SPDX-License-Identifier: Apache-2.0 */
/* Where a test that is compiled twice finds the GPU's table of operations: in test_gpu_NOUN that of
 * this machine's card and cuBLASLt, in test_cuda_NOUN one over stand-ins on the host. What fails
 * here fails the test. */
#ifndef MUSTER_TESTS_OP_DEVICE_H
#define MUSTER_TESTS_OP_DEVICE_H

#include "tests/unit/trainer/cuda/host/op_cases.h"
#include "trainer/cuda/host/gemm_plans.h"

/* Ended by its destroy. */
struct ops *op_device_create(enum gemm_mode mode);

/* The sizes of a training of GPT-2 124M ($MUSTER_TEST_BATCH samples at once, 32 where that is not
 * set); small ones on the host. */
struct op_sizes op_device_full_size(void);

bool op_device_is_gpu(void);
/* How often a test repeats an operation, and the bytes of a copy beside it. */
int op_device_times(void);
size_t op_device_noise(void);

#endif
