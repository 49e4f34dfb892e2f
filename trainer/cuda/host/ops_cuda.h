/* SPDX-License-Identifier: Apache-2.0 */
/* Creates the GPU's table of operations. */
#ifndef MUSTER_CUDA_OPS_CUDA_H
#define MUSTER_CUDA_OPS_CUDA_H

#include <stdbool.h>
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

/* From now on the table uses cuDNN's attention for its shape, and owns `attention`, even after an
 * error. */
struct attention_cudnn;
int ops_cuda_take_attention(struct ops *ops, struct attention_cudnn *attention, struct err *err);

/* The same for a shape of attention_cudnn_create, if the ops compute in bf16, this build and node
 * have it, there is memory for it, and two runs of it come to the same bits; else false, with the
 * reason. */
bool ops_cuda_try_attention(struct ops *ops, int B, int T, int C, int H, struct err *why);

/* Goes back to our own attention. */
void ops_cuda_drop_attention(struct ops *ops);

/* Bytes of device memory that prepare() takes for these shapes, including what the table always
 * needs. */
size_t ops_cuda_scratch(const struct ops_shapes *shapes, enum gemm_mode mode);

#endif
