/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of batch normalisation on the GPU. Their reference is struct ops' batchnorm_moments,
 * _relu, _sums and _backward; shapes are the same.
 *
 * Tensors that are `void *` are of `type`, sums fp64, the others fp32; rows m with targets[m] < 0
 * do not count. All pointers are the device's, `stream` is a cudaStream_t. Each call queues its
 * kernel and returns 0 or the cudaError_t of the launch. */
#ifndef MUSTER_CUDA_BATCHNORM_H
#define MUSTER_CUDA_BATCHNORM_H

#include <stdint.h>

#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* moments[2,C]: the mean over the rows, and the sum of the squared distances from it */
int cuda_batchnorm_moments(double *moments, const void *x, const int32_t *targets, int M, int C,
	enum cuda_type type, void *stream);
/* y[M,C] = max(0, (x - mean)·rstd·gamma + beta) */
int cuda_batchnorm_relu(void *y, const void *x, const float *mean, const float *rstd,
	const void *gamma, const void *beta, int M, int C, enum cuda_type type, void *stream);
/* sums[2,C]: of dy·n, n = (x - mean)·rstd, and of dy; dgamma[C] and dbeta[C] = or += the same */
int cuda_batchnorm_sums(double *sums, float *dgamma, float *dbeta, const void *dy, const void *x,
	const float *mean, const float *rstd, const int32_t *targets, int M, int C, int accumulate,
	enum cuda_type type, void *stream);
/* dx[M,C] = (dy - means[1] - n·means[0])·gamma·rstd with means[2,C], 0 in rows that do not count;
 * dx may be dy */
int cuda_batchnorm_backward(void *dx, const void *dy, const void *x, const float *mean,
	const float *rstd, const void *gamma, const float *means, const int32_t *targets, int M, int C,
	enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
