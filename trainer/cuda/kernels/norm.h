/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation on the GPU, fused with the addition of the residual. Its reference is struct
 * ops' layernorm and layernorm_backward.
 *
 * M rows of C elements. Tensors that are `void *` are of `type`, the others fp32. All pointers are
 * the device's, `stream` is a cudaStream_t. Each call queues its kernels and returns 0 or the
 * cudaError_t of a launch. Rows are read sixteen bytes at a time where their addresses and C allow
 * it. */
#ifndef MUSTER_CUDA_NORM_H
#define MUSTER_CUDA_NORM_H

#include <stddef.h>

#include "trainer/cuda/kernels/partials.h"
#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[M,C] = (x - mean)·rstd·gamma + beta; saves mean[M] and rstd[M]. With `add` not NULL, first
 * sum[M,C] = x + add, and the norm is of sum as it is stored; sum may be x. */
int cuda_layernorm(void *sum, void *y, float *mean, float *rstd, const void *x, const void *add,
	const void *gamma, const void *beta, int M, int C, enum cuda_type type, void *stream);

/* fp32 elements of `scratch`. */
static inline size_t cuda_layernorm_scratch(int M, int C)
{
	return 2 * (size_t)partial_count(M) * (size_t)C;
}

/* dx[M,C] = or += (accumulate_dx); dgamma[C] and dbeta[C], fp32, = or += (accumulate). x is the
 * input of the norm. dx may be dy. */
int cuda_layernorm_backward(void *dx, float *dgamma, float *dbeta, float *scratch, const void *dy,
	const void *x, const void *gamma, const float *mean, const float *rstd, int M, int C,
	int accumulate_dx, int accumulate, enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
