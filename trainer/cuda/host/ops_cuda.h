/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the GPU's table of operations. */
#ifndef MUSTER_CUDA_OPS_CUDA_H
#define MUSTER_CUDA_OPS_CUDA_H

#include <stddef.h>

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/gpu.h"
#include "trainer/ops/ops.h"

/* On the GPU of device_cuda_begin; its memory is not the host's. NULL on error. Free it, and the
 * device with it, with ops->destroy. */
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
