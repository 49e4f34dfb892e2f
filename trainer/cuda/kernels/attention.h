/* SPDX-License-Identifier: Apache-2.0 */
/* Causal self-attention on the GPU, fused: scores never reach memory (FlashAttention, arXiv
 * 2205.14135 and 2307.08691). Its reference is the CPU's struct ops.attention. bf16 with heads of
 * at most 128 columns, a multiple of 8, runs on the tensor cores (attention_mma.cu), all else in
 * plain fp32 arithmetic (attention_plain.cu). Shapes: B = samples, T = positions, C = width, H =
 * heads, D = C / H. */
#ifndef MUSTER_CUDA_ATTENTION_H
#define MUSTER_CUDA_ATTENTION_H

#include <stddef.h>

#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the backward pass' scratch: one fp32 sum for each row of a head. */
static inline size_t cuda_attention_scratch(int B, int T, int H)
{
	return (size_t)B * (size_t)T * (size_t)H * sizeof(float);
}

/* y[B,T,C] = softmax(q·kᵀ / sqrt(D) where the key is not after the query)·v, and lse[B,H,T], the
 * logarithm of the sum of exponentials, which the backward pass reads. qkv[B,T,3C] holds q, k, v
 * side by side, heads within each. qkv and y are of `type` and at a multiple of 16 bytes; lse is
 * fp32. Device pointers; `stream` is a cudaStream_t. Queues the kernel and returns 0 or the
 * cudaError_t of the launch. */
int cuda_attention(void *y, float *lse, const void *qkv, int B, int T, int C, int H,
	enum cuda_type type, void *stream);

/* Overwrites dqkv[B,T,3C] of `type`, from dy[B,T,C] and what the forward pass read and wrote;
 * `scratch` has cuda_attention_scratch bytes. Otherwise as above. */
int cuda_attention_backward(void *dqkv, float *scratch, const void *dy, const void *qkv,
	const void *y, const float *lse, int B, int T, int C, int H, enum cuda_type type, void *stream);

#ifdef __cplusplus
}
#endif

#endif
