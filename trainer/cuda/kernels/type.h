/* SPDX-License-Identifier: Apache-2.0 */
/* The types that activations, and the weights that forward and backward read, can have on the GPU.
 * Gradients of weights, the optimizer's state, losses and what the norms save are always fp32. */
#ifndef MUSTER_CUDA_TYPE_H
#define MUSTER_CUDA_TYPE_H

#include <stddef.h>

enum cuda_type { CUDA_FP32, CUDA_BF16 };

/* Bytes of an element. */
static inline size_t cuda_type_bytes(enum cuda_type type)
{
	return type == CUDA_BF16 ? 2 : 4;
}

#endif
