/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention in the place of ours (--attention cudnn), in bf16. It computes what
 * cuda_attention does, and what its backward pass reads of the forward pass is the same: y, and
 * lse, the natural logarithm. Built where cuDNN's headers and its frontend are there; the library
 * itself is loaded when it is asked for. */
#ifndef MUSTER_CUDA_ATTENTION_CUDNN_H
#define MUSTER_CUDA_ATTENTION_CUDNN_H

#include <stddef.h>

#include "common/err.h"

/* The plans of both passes for one shape. */
struct attention_cudnn;

/* On the current device, by deterministic engines only. B samples of T positions, C wide, in H
 * heads. NULL on error: EXIT_USAGE where this build or this node has no cuDNN, or cuDNN nothing for
 * the shape. */
struct attention_cudnn *attention_cudnn_create(int B, int T, int C, int H, struct err *err);
/* NULL is allowed. */
void attention_cudnn_destroy(struct attention_cudnn *attention);

/* Bytes of device memory that each pass needs, aligned to 256. */
size_t attention_cudnn_workspace(const struct attention_cudnn *attention);
/* What bits depend on: "cuDNN 9.13.0, forward …, backward …", with the names of the plans. */
const char *attention_cudnn_text(const struct attention_cudnn *attention);

/* As cuda_attention and cuda_attention_backward, for the shape of the plans: another one is an
 * error. */
int attention_cudnn_forward(struct attention_cudnn *attention, void *y, float *lse, const void *qkv,
	int B, int T, int C, int H, void *workspace, void *stream, struct err *err);
int attention_cudnn_backward(struct attention_cudnn *attention, void *dqkv, const void *dy,
	const void *qkv, const void *y, const float *lse, int B, int T, int C, int H, void *workspace,
	void *stream, struct err *err);

#endif
