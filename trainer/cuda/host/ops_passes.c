/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that are one kernel of ours, or a few: each passes on its pointers, the scratch
 * and the stream. */
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/ops_cuda_private.h"
#include "trainer/cuda/kernels/adamw.h"
#include "trainer/cuda/kernels/add.h"
#include "trainer/cuda/kernels/attention.h"
#include "trainer/cuda/kernels/batchnorm.h"
#include "trainer/cuda/kernels/tree_reduce.h"
#include "trainer/cuda/kernels/cross_entropy.h"
#include "trainer/cuda/kernels/elements.h"
#include "trainer/cuda/kernels/embedding.h"
#include "trainer/cuda/kernels/norm.h"
#include "trainer/cuda/kernels/square_sums.h"
#include "trainer/cuda/kernels/sum_losses.h"

#define RUN(launch) \
	do { \
		struct ops_cuda *cuda = ops_cuda_of(ops); \
		CUDA_RUN(ops->device, launch); \
	} while (0)

static void embedding(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	RUN(cuda_embedding(out, tokens, wte, wpe, B, T, C, cuda->type, cuda->stream));
}

static void embedding_backward(struct ops *ops, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate)
{
	RUN(cuda_embedding_backward(dwte, dwpe, cuda->scratch, dout, tokens, B, T, C, V, accumulate,
		cuda->type, cuda->stream));
}

static void layernorm(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
	const float *x, const float *add, const float *gamma, const float *beta, int M, int C)
{
	RUN(cuda_layernorm(sum, y, mean, rstd, x, add, gamma, beta, M, C, cuda->type, cuda->stream));
}

static void layernorm_backward(struct ops *ops, float *dx, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
	int M, int C, int accumulate_dx, int accumulate)
{
	RUN(cuda_layernorm_backward(dx, dgamma, dbeta, cuda->scratch, dy, x, gamma, mean, rstd, M, C,
		accumulate_dx, accumulate, cuda->type, cuda->stream));
}

static void batchnorm_moments(struct ops *ops, double *moments, const float *x,
	const int32_t *targets, int M, int C)
{
	RUN(cuda_batchnorm_moments(moments, x, targets, M, C, cuda->type, cuda->stream));
}

static void batchnorm_relu(struct ops *ops, float *y, const float *x, const float *mean,
	const float *rstd, const float *gamma, const float *beta, int M, int C)
{
	RUN(cuda_batchnorm_relu(y, x, mean, rstd, gamma, beta, M, C, cuda->type, cuda->stream));
}

static void batchnorm_sums(struct ops *ops, double *sums, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *mean, const float *rstd, const int32_t *targets,
	int M, int C, int accumulate)
{
	RUN(cuda_batchnorm_sums(sums, dgamma, dbeta, dy, x, mean, rstd, targets, M, C, accumulate,
		cuda->type, cuda->stream));
}

static void batchnorm_backward(struct ops *ops, float *dx, const float *dy, const float *x,
	const float *mean, const float *rstd, const float *gamma, const float *means,
	const int32_t *targets, int M, int C)
{
	RUN(cuda_batchnorm_backward(dx, dy, x, mean, rstd, gamma, means, targets, M, C, cuda->type,
		cuda->stream));
}

/* Its plans are for one shape; others, such as a text that is sampled, have our own attention. */
static bool is_cudnns(const struct ops_cuda *own, int B, int T, int C, int H)
{
	return own->cudnn && attention_cudnn_is_for(own->cudnn, B, T, C, H);
}

static void attention(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
	int H)
{
	struct ops_cuda *own = ops_cuda_of(ops);
	struct err err;
	if (!is_cudnns(own, B, T, C, H))
		RUN(cuda_attention(y, lse, qkv, B, T, C, H, cuda->type, cuda->stream));
	else if (cuda_begin(ops->device))
		cuda_note(ops->device,
			attention_cudnn_forward(own->cudnn, y, lse, qkv, B, T, C, H, own->cudnn_workspace,
				own->stream, &err),
			&err);
}

static void attention_backward(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
	const float *y, const float *lse, int B, int T, int C, int H)
{
	struct ops_cuda *own = ops_cuda_of(ops);
	struct err err;
	if (!is_cudnns(own, B, T, C, H))
		RUN(cuda_attention_backward(dqkv, cuda->scratch, dy, qkv, y, lse, B, T, C, H, cuda->type,
			cuda->stream));
	else if (cuda_begin(ops->device))
		cuda_note(ops->device,
			attention_cudnn_backward(own->cudnn, dqkv, dy, qkv, y, lse, B, T, C, H,
				own->cudnn_workspace, own->stream, &err),
			&err);
}

static void cross_entropy(struct ops *ops, float *losses, float *logits, const int32_t *targets,
	int M, int V, bool gradient)
{
	RUN(cuda_cross_entropy(losses, logits, targets, cuda->params_device, (size_t)M, V, V, gradient,
		cuda->type, cuda->stream));
}

static void adamw_chunks(struct ops *ops, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad,
	const struct adamw_chunk *chunks, size_t count)
{
	const struct cuda_adamw arenas = { *to, *from, grad, compute, ops_cuda_of(ops)->type };
	RUN(cuda_adamw_chunks(&arenas, chunks, count, cuda->params_device, cuda->stream));
}

static void sum_losses(struct ops *ops, double *sum, const float *losses, size_t count,
	int accumulate)
{
	RUN(cuda_sum_losses(sum, losses, count, accumulate, cuda->stream));
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	CUDA_RUN(ops->device, cuda_square_sums(sums, x, count, cuda_stream_of(ops->device)));
}

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	CUDA_RUN(ops->device, cuda_add(out, a, b, count, cuda_stream_of(ops->device)));
}

static void tree_reduce(struct ops *ops, float *out, float *const *pieces, const int *additions,
	int count, size_t elements)
{
	struct cuda_tree_reduce stack = { .count = count };
	for (int n = 0; n < count; n++) {
		stack.pieces[n].at = pieces[n];
		stack.pieces[n].additions = additions[n];
	}
	CUDA_RUN(ops->device, cuda_tree_reduce(out, &stack, elements, cuda_stream_of(ops->device)));
}

static void zero(struct ops *ops, float *out, size_t count)
{
	RUN(cuda_zero(out, count, cuda->stream));
}

void ops_cuda_passes_install(struct ops *ops)
{
	ops->embedding = embedding;
	ops->embedding_backward = embedding_backward;
	ops->layernorm = layernorm;
	ops->layernorm_backward = layernorm_backward;
	ops->batchnorm_moments = batchnorm_moments;
	ops->batchnorm_relu = batchnorm_relu;
	ops->batchnorm_sums = batchnorm_sums;
	ops->batchnorm_backward = batchnorm_backward;
	ops->attention = attention;
	ops->attention_backward = attention_backward;
	ops->cross_entropy = cross_entropy;
	ops->adamw_chunks = adamw_chunks;
	ops->sum_losses = sum_losses;
	ops->square_sums = square_sums;
	ops->add = add;
	ops->tree_reduce = tree_reduce;
	ops->zero = zero;
}
