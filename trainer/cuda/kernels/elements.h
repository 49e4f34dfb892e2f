/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations on the GPU that no matrix product does on the way: biases and
 * activations, zeros of an arena, casts from and to bf16. Tensors that are `void *` are of `type`.
 * All pointers are the device's, `stream` is a cudaStream_t. Each call queues its kernel and
 * returns 0 or the cudaError_t of the launch. */
#ifndef MUSTER_CUDA_ELEMENTS_H
#define MUSTER_CUDA_ELEMENTS_H

#include <stddef.h>

#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_activation { CUDA_IDENTITY, CUDA_RELU, CUDA_GELU /* tanh form as in GPT-2 */ };

/* pre[M,N] = x[M,N] + bias[N] (bias may be NULL); y[M,N] = the activation of pre as it is stored,
 * so that y computed again from pre has the same bits. pre may be NULL; pre and y may be x. */
int cuda_activation(void *y, void *pre, const void *x, const void *bias, int M, int N,
	enum cuda_activation activation, enum cuda_type type, void *stream);

/* dx[i] = dy[i]·GELU'(pre[i]); dx may be dy */
int cuda_gelu_backward(void *dx, const void *dy, const void *pre, size_t count, enum cuda_type type,
	void *stream);
/* dx[i] = dy[i] where y[i] > 0, else 0; dx may be dy */
int cuda_relu_backward(void *dx, const void *dy, const void *y, size_t count, enum cuda_type type,
	void *stream);

/* out[i] = 0 */
int cuda_zero(float *out, size_t count, void *stream);
/* out[i] = x[i] as bf16, rounded to nearest, ties to even */
int cuda_to_bf16(void *out, const float *x, size_t count, void *stream);
/* out[i] = x[i], which is bf16 */
int cuda_from_bf16(float *out, const void *x, size_t count, void *stream);

#ifdef __cplusplus
}
#endif

#endif
