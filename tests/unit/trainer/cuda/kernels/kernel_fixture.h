/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of kernels share: operands in the element type asked for, outputs that every order
 * of threads must give the same bits, the CPU's ops as the reference. All memory is freed by
 * kernel_done(). */
#ifndef MUSTER_KERNEL_FIXTURE_H
#define MUSTER_KERNEL_FIXTURE_H

#include "tests/shim/device.h"
#include "trainer/cuda/kernels/type.h"
#include "trainer/ops/ops.h"

/* How far ||out - reference|| / ||reference|| may be. */
static inline double kernel_bound(enum cuda_type type)
{
	return type == CUDA_BF16 ? 1e-2 : 1e-5;
}

/* The CPU's plain ops; lives until kernel_done(). */
struct ops *kernel_reference(void);

/* `count` floats in [-scale, scale] that a tensor of `type` can hold, a function of `seed`. */
float *kernel_floats(size_t count, float scale, uint32_t seed, enum cuda_type type);
/* Zeroed memory. */
void *kernel_host(size_t bytes);

/* Operands on the device, of their exact size; with `shift` they begin that many elements after an
 * aligned address. */
void *kernel_operand(const void *host, size_t bytes, size_t shift_bytes);
void *kernel_tensor(const float *values, size_t count, enum cuda_type type, int shift);

/* The same for what a kernel writes: before every run it is `initial`, or poison where that is
 * NULL. */
void *kernel_output(const char *name, const void *initial, size_t bytes, size_t shift_bytes);
void *kernel_output_tensor(const char *name, const float *initial, size_t count,
	enum cuda_type type, int shift);

/* Runs it in every order of threads and blocks; fails unless all outputs since kernel_done() have
 * the same bits in each. */
void kernel_run(void (*run)(void *arg), void *arg);

/* What the run left there. */
const void *kernel_result(const void *output);
float *kernel_values(const void *output, size_t count, enum cuda_type type);

void kernel_done(void);

#endif
