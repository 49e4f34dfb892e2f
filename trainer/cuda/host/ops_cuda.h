/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the GPU's table of operations. */
#ifndef MUSTER_CUDA_OPS_CUDA_H
#define MUSTER_CUDA_OPS_CUDA_H

#include <stddef.h>

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/gpu.h"
#include "trainer/ops/ops.h"

/* The CUDA version of the runtime that this program was built with, 13000 for 13.0. */
int ops_cuda_runtime(void);

/* Makes a GPU the current device of this thread, and of every thread that calls ops later. Call it
 * before any other call of CUDA. *available: bytes of its memory that are free. */
int ops_cuda_begin(const struct gpu *gpu, uint64_t *available, struct err *err);

/* On the GPU of ops_cuda_begin; its memory is not the host's. NULL on error. Free it with
 * ops->destroy. */
struct ops *ops_cuda_create(const struct gpu *gpu, enum gemm_mode mode, struct err *err);

/* The same over the caller's cuBLASLt (struct cublas), for tests. */
struct ops *ops_cuda_create_over(const void *cublas, const struct gpu *gpu, enum gemm_mode mode,
	struct err *err);

/* From now on the table uses cuDNN's attention and owns `attention`, even after an error. */
struct attention_cudnn;
int ops_cuda_take_attention(struct ops *ops, struct attention_cudnn *attention, struct err *err);

/* Bytes of device memory that prepare() takes for these shapes, including what the table always
 * needs. */
size_t ops_cuda_scratch(const struct ops_shapes *shapes, enum gemm_mode mode);

#endif
