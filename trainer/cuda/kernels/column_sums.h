/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of a bias where the matrix product's own epilogue is not used: fp32 sums of a
 * matrix' columns. Its reference is the dbias of struct ops' linear_backward_weight. */
#ifndef MUSTER_CUDA_COLUMN_SUMS_H
#define MUSTER_CUDA_COLUMN_SUMS_H

#include <stddef.h>

#include "trainer/cuda/kernels/partials.h"
#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fp32 elements of `scratch`. */
static inline size_t cuda_column_sums_scratch(int M, int N)
{
	return (size_t)partial_count(M) * (size_t)N;
}

/* dbias[N], fp32, = or += the column sums of dy[M,N], which is of `type`. All pointers are the
 * device's. Queues the kernels and returns 0 or the cudaError_t of a launch. */
int cuda_column_sums(float *dbias, float *scratch, const void *dy, int M, int N, int accumulate,
	enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
