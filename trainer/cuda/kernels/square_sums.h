/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of the gradient norm on the GPU, with exactly the bits of struct ops' square_sums. */
#ifndef MUSTER_CUDA_SQUARE_SUMS_H
#define MUSTER_CUDA_SQUARE_SUMS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* sums[i] = fp64 sum of squares of elements [i·NORM_BLOCK, (i+1)·NORM_BLOCK) of x[count], by the
 * tree of plain_update.c. Device pointers. Queues the kernel and returns 0 or the cudaError_t of
 * the launch. */
int cuda_square_sums(double *sums, const float *x, size_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
