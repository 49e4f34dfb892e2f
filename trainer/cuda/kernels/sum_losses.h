/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of a microbatch's losses on the GPU, with exactly the bits of struct ops' sum_losses. */
#ifndef MUSTER_CUDA_SUM_LOSSES_H
#define MUSTER_CUDA_SUM_LOSSES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* *sum = or += (accumulate) the sum of losses[count], by blocks of LOSS_BLOCK. Device pointers.
 * Queues the kernel and returns 0 or the cudaError_t of the launch. */
int cuda_sum_losses(double *sum, const float *losses, size_t count, int accumulate, void *stream);

#ifdef __cplusplus
}
#endif

#endif
