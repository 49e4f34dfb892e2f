/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention in place of ours (--attention cudnn), in bf16. It computes what cuda_attention
 * computes, and its backward pass reads the same results of the forward pass: y, and lse, the
 * natural logarithm. It is built where cuDNN's headers and its frontend are installed; the library
 * itself is loaded on demand. */
#ifndef MUSTER_CUDA_ATTENTION_CUDNN_H
#define MUSTER_CUDA_ATTENTION_CUDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"

/* The plans of both passes for one shape. */
struct attention_cudnn;

/* Builds the plans on the current device, of deterministic engines only, for B samples of T
 * positions, C wide, with H heads. NULL on error: EXIT_USAGE where this build or node has no cuDNN,
 * or cuDNN has nothing for the shape. */
struct attention_cudnn *attention_cudnn_create(int B, int T, int C, int H, struct err *err);
/* `attention` may be NULL. */
void attention_cudnn_destroy(struct attention_cudnn *attention);

/* Bytes of device memory that each pass needs, aligned to 256 bytes. */
size_t attention_cudnn_workspace(const struct attention_cudnn *attention);
/* What bits depend on, with the names of the plans: "cuDNN 9.13.0, forward …, backward …".
 * Borrowed. */
const char *attention_cudnn_text(const struct attention_cudnn *attention);

/* Whether the plans are for that shape. */
bool attention_cudnn_is_for(const struct attention_cudnn *attention, int B, int T, int C, int H);

/* As cuda_attention and cuda_attention_backward, but only for the plans' shape; another shape is an
 * error. */
int attention_cudnn_forward(struct attention_cudnn *attention, void *y, float *lse, const void *qkv,
	int B, int T, int C, int H, void *workspace, void *stream, struct err *err);
int attention_cudnn_backward(struct attention_cudnn *attention, void *dqkv, const void *dy,
	const void *qkv, const void *y, const float *lse, int B, int T, int C, int H, void *workspace,
	void *stream, struct err *err);

#endif
