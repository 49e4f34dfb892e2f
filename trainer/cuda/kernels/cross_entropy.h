/* SPDX-License-Identifier: Apache-2.0 */
/* The cross-entropy of rows of logits on the GPU, and its gradient in their place. Its reference is
 * the CPU's struct ops.cross_entropy. */
#ifndef MUSTER_CUDA_CROSS_ENTROPY_H
#define MUSTER_CUDA_CROSS_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/cuda/kernels/type.h"
#include "trainer/ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* losses[m] = log Σ exp(logits[m,:V]) - logits[m, targets[m]] for m < M; 0 where targets[m] < 0, a
 * row that does not count. logits[M,pitch] are of `type` and at a multiple of 16 bytes; columns
 * from V on are padding and never read. With `gradient` the logits become their gradient, (softmax
 * - one at the target)·params->loss_scale: 0 in rows that do not count and in the padding. Device
 * pointers; `stream` is a cudaStream_t. Queues the kernel and returns 0 or the cudaError_t of the
 * launch. */
int cuda_cross_entropy(float *losses, void *logits, const int32_t *targets,
	const struct step_params *params, size_t M, int V, int pitch, bool gradient,
	enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
