/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how far two tensors are apart, so that tuning can compare one algorithm's result with
 * another's. */
#ifndef MUSTER_CUDA_DIFFERENCE_H
#define MUSTER_CUDA_DIFFERENCE_H

#include <stddef.h>

#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DIFFERENCE_PARTS 1024    /* most parts */
#define DIFFERENCE_ELEMENTS 4096 /* elements of a part, unless there would be too many parts */

/* The maxima over a part of the elements, or over all. A NaN counts as infinity. */
struct difference {
	float most;    /* |a[i] - b[i]| */
	float largest; /* |b[i]| */
};

static inline unsigned int difference_parts(size_t count)
{
	size_t parts = (count + DIFFERENCE_ELEMENTS - 1) / DIFFERENCE_ELEMENTS;
	return (unsigned int)(parts < DIFFERENCE_PARTS ? parts : DIFFERENCE_PARTS);
}

/* Writes parts[difference_parts(count)], on the device, for the `count` elements of a and b, both
 * of `type`. Queues the kernel and returns 0 or the cudaError_t of the launch. */
int cuda_difference(struct difference *parts, const void *a, const void *b, size_t count,
	enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
