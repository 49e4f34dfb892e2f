/* SPDX-License-Identifier: Apache-2.0 */
/* The addition of the canonical reduction, on the GPU. Its reference is the CPU's struct
 * ops.add. */
#ifndef MUSTER_CUDA_ADD_H
#define MUSTER_CUDA_ADD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[i] = a[i] + b[i] for i < count, in fp32, rounded to nearest; out may be a or b. Device
 * pointers; `stream` is a cudaStream_t. Queues the kernel and returns 0 or the cudaError_t of the
 * launch. */
int cuda_add(float *out, const float *a, const float *b, size_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
