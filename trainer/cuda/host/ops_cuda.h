/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's table of operations. */
#ifndef MUSTER_CUDA_OPS_CUDA_H
#define MUSTER_CUDA_OPS_CUDA_H

#include <stddef.h>

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/gpu.h"
#include "trainer/ops/ops.h"

/* CUDA version of the runtime that this program was built with, 13000 for 13.0. */
int ops_cuda_runtime(void);

/* Makes a GPU the current one of this thread, and of all that ops are called from; before any other
 * call of CUDA. *available is what of its memory is free. */
int ops_cuda_begin(const struct gpu *gpu, uint64_t *available, struct err *err);

/* On the GPU of ops_cuda_begin; NULL on error. Its memory is not the host's. Freed by ops->destroy.
 */
struct ops *ops_cuda_create(const struct gpu *gpu, enum gemm_mode mode, struct err *err);

/* The same over a cuBLASLt of the caller's (struct cublas), for tests. */
struct ops *ops_cuda_create_over(const void *cublas, const struct gpu *gpu, enum gemm_mode mode,
	struct err *err);

/* Attention is cuDNN's from now on, and `attention` the table's; at an error, too. */
struct attention_cudnn;
int ops_cuda_take_attention(struct ops *ops, struct attention_cudnn *attention, struct err *err);

/* Bytes of device memory that prepare() takes for these shapes, with what a table needs in any
 * case. */
size_t ops_cuda_scratch(const struct ops_shapes *shapes, enum gemm_mode mode);

#endif
