/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that every model is written in, as a table of functions. A model calls them
 * without knowing the device that computes them.
 *
 * The contract:
 *  - no op takes a number of the step by value: these lie in one struct step_params, which is
 *    written once a step;
 *  - after prepare() no op allocates, synchronises with the host or chooses an algorithm;
 *  - a backward op writes to the fp32 destination that the caller names; `accumulate` 1 adds to
 *    it, 0 overwrites it;
 *  - the bits of a result depend on the shapes and the inputs, never on the number of threads.
 *
 * Shapes: M = rows (batch × positions), C = width, K/N = inputs/outputs of a linear layer, V =
 * vocabulary, B = batch, T = positions, H = heads, D = C / H. All matrices are row-major; weights
 * are [in, out] as in Hugging Face's Conv1D.
 *
 * Memory is the device's (device.h). Where the host can't touch it (device_has_memory),
 * tokens, targets and inputs must be copied in first, and what the host reads must be copied out;
 * no op takes or returns host memory. Activations, and the weights that passes read, have the
 * device's compute type of `element` bytes: with 2 (bf16) a float * to them is only an address.
 * Gradients of weights, master weights, moments, losses, mean, rstd and lse are always fp32. */
#ifndef MUSTER_OPS_H
#define MUSTER_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/ops/device.h"

struct ops;

/* The numbers of one step. Ops read them from the device's memory. */
struct step_params {
	uint64_t step; /* counted from 1 */
	float learning_rate;
	float beta1, beta2, epsilon, weight_decay;
	float bias1, bias2; /* 1 / (1 - beta^step) */
	float clip;         /* factor of the gradients: min(1, max_norm / norm) */
	float loss_scale;   /* 1 / number of valid tokens in the global batch */
	int32_t masked;     /* 1: the norm or the loss is not finite, so adamw changes nothing */
};

/* AdamW's state for each element. */
struct adamw_state {
	float *weights, *m, *v;
};

/* Consecutive elements of one parameter that an update handles as one piece of work. */
struct adamw_chunk {
	uint64_t first;   /* offset in the arenas */
	uint64_t moments; /* offset in the arenas of moments, which may hold this rank's only */
	uint32_t count;   /* at most ADAMW_CHUNK */
	uint32_t decay;   /* 1: weight decay applies */
};

#define ADAMW_CHUNK 2048

/* The largest shapes that will be asked for; 0 for those that the model does not have. */
struct ops_shapes {
	int batch, positions, width, heads, vocabulary, hidden;
};

/* Elements of one block of the gradient norm, which has one fp64 sum of squares. */
#define NORM_BLOCK 4096

/* Losses that are summed in order into one partial sum; the partial sums are then added in
 * order. */
#define LOSS_BLOCK 256

/* Most pieces that one tree_reduce() adds. */
#define OPS_TREE_REDUCE_MAX 240

/* Rows of an embedding in device memory: a multiple of a matrix product's tile. Rows after the
 * vocabulary are zero. */
#define OPS_VOCABULARY_ALIGN 128
#define OPS_VOCABULARY_ROWS(V) \
	(((V) + OPS_VOCABULARY_ALIGN - 1) / OPS_VOCABULARY_ALIGN * OPS_VOCABULARY_ALIGN)

struct ops {
	const char *name;      /* "cpu-dnnl", "cpu-plain", "cuda" */
	struct device *device; /* which computes them; lives as long as they do */
	void *state;           /* owned by the implementation */
	const char *libraries; /* of a GPU, for the numerics record; NULL on a CPU */
	size_t element;        /* bytes of an activation: 4 or 2 */
	struct step_params
		*params; /* host copy, which the trainer writes; ops see it after ops_put_params() */

	int (*prepare)(struct ops *ops, const struct ops_shapes *shapes, struct err *err);
	void (*destroy)(struct ops *ops);
	/* NULL where memory is the host's. */
	void (*put_params)(struct ops *ops);
	/* Casts master weights to the weights that passes read: compute[i] = weights[i] in the compute
	 * type. NULL with element 4. */
	void (*cast)(struct ops *ops, float *compute, const float *weights, size_t count);
	/* These are NULL where there are no algorithms to choose. choose() chooses one for each shape
	 * of prepare() that has none yet. algorithms() returns all that were chosen as a malloc'ed line
	 * of text; adopt() takes over the algorithms of such a text, or refuses it. */
	int (*choose)(struct ops *ops, struct err *err);
	/* As choose(), but times all candidates, within `seconds`; shapes that the time is too short
	 * for are chosen without timing. Logs the result. */
	int (*tune)(struct ops *ops, double seconds, struct err *err);
	char *(*algorithms)(struct ops *ops);
	int (*adopt)(struct ops *ops, const char *text, struct err *err);

	/* out[M,C] = wte[tokens[m],:] + wpe[m % T,:]; M = B·T */
	void (*embedding)(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
		const float *wpe, int B, int T, int C);
	/* dwte[V,C] += dout at tokens; dwpe[T,C] = or += the sum over B. Rows of dwte whose token does
	 * not occur are left alone. Sums run in ascending m. dwte always accumulates, since the head
	 * wrote it before; `accumulate` is for dwpe. */
	void (*embedding_backward)(struct ops *ops, float *dwte, float *dwpe, const float *dout,
		const int32_t *tokens, int B, int T, int C, int V, int accumulate);

	/* y[M,C] = (x - mean)·rstd·gamma + beta over C, epsilon 1e-5; saves mean[M] and rstd[M]. With
	 * `add` not NULL, first sum[M,C] = x + add, and the norm is of sum (residual and layernorm in
	 * one pass); sum may be x. */
	void (*layernorm)(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
		const float *x, const float *add, const float *gamma, const float *beta, int M, int C);
	/* dx[M,C] = or += (accumulate_dx), dgamma[C] and dbeta[C] = or += (accumulate). x is the input
	 * of the norm. */
	void (*layernorm_backward)(struct ops *ops, float *dx, float *dgamma, float *dbeta,
		const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
		int M, int C, int accumulate_dx, int accumulate);

	/* Batch normalisation over the rows, in parts: between the parts the ranks combine their
	 * statistics (batchnorm.h). Rows m with targets[m] < 0 do not count. Sums are fp64.
	 * moments[2,C]: the mean over the rows, and the sum of the squared distances from it. */
	void (*batchnorm_moments)(struct ops *ops, double *moments, const float *x,
		const int32_t *targets, int M, int C);
	/* y[M,C] = max(0, (x - mean)·rstd·gamma + beta); mean, rstd, gamma and beta are [C] */
	void (*batchnorm_relu)(struct ops *ops, float *y, const float *x, const float *mean,
		const float *rstd, const float *gamma, const float *beta, int M, int C);
	/* sums[2,C]: of dy·n, n = (x - mean)·rstd, and of dy; dgamma[C] and dbeta[C] = or += the
	 * same */
	void (*batchnorm_sums)(struct ops *ops, double *sums, float *dgamma, float *dbeta,
		const float *dy, const float *x, const float *mean, const float *rstd,
		const int32_t *targets, int M, int C, int accumulate);
	/* dx[M,C] = (dy - means[1] - n·means[0])·gamma·rstd with means[2,C] = the sums over all ranks ÷
	 * the number of their rows; 0 in rows that do not count. dx may be dy. */
	void (*batchnorm_backward)(struct ops *ops, float *dx, const float *dy, const float *x,
		const float *mean, const float *rstd, const float *gamma, const float *means,
		const int32_t *targets, int M, int C);

	/* y[M,N] = x[M,K] · w[K,N] + bias[N] (bias may be NULL) */
	void (*linear)(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
		int M, int K, int N);
	/* pre[M,N] = x·w + bias, y = GELU(pre), tanh form as in GPT-2 */
	void (*linear_gelu)(struct ops *ops, float *y, float *pre, const float *x, const float *w,
		const float *bias, int M, int K, int N);
	/* y = max(0, x·w + bias) */
	void (*linear_relu)(struct ops *ops, float *y, const float *x, const float *w,
		const float *bias, int M, int K, int N);
	/* dx[M,K] = dy[M,N] · wᵀ */
	void (*linear_backward_input)(struct ops *ops, float *dx, const float *dy, const float *w,
		int M, int K, int N);
	/* dx[M,K] = (dy · wᵀ) ⊙ GELU'(pre[M,K]) */
	void (*linear_backward_input_gelu)(struct ops *ops, float *dx, const float *dy, const float *w,
		const float *pre, int M, int K, int N);
	/* dx[M,K] = (dy · wᵀ) where y[M,K] > 0, else 0 */
	void (*linear_backward_input_relu)(struct ops *ops, float *dx, const float *dy, const float *w,
		const float *y, int M, int K, int N);
	/* dw[K,N] = or += xᵀ · dy; dbias[N] = or += the column sums of dy (dbias may be NULL) */
	void (*linear_backward_weight)(struct ops *ops, float *dw, float *dbias, const float *x,
		const float *dy, int M, int K, int N, int accumulate);

	/* Causal self-attention. qkv[B,T,3C] holds q, k, v side by side, heads within each; y[B,T,C];
	 * lse[B,H,T] saves the logarithm of the sum of exponentials. Scale 1/sqrt(D). */
	void (*attention)(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
		int H);
	void (*attention_backward)(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
		const float *y, const float *lse, int B, int T, int C, int H);

	/* The tied head and its loss in one: logits = x[M,C] · wte[V,C]ᵀ, losses[m] = cross-entropy at
	 * targets[m], or 0 where targets[m] < 0 (no token). With dx not NULL also the gradients, each
	 * times params->loss_scale: dx[M,C] = …, dwte[V,C] = or += …. The logits need not exist as a
	 * whole. In device memory wte and dwte have OPS_VOCABULARY_ROWS(V) rows, all of which enter the
	 * products. */
	void (*head_loss)(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
		const float *wte, const int32_t *targets, int M, int C, int V, int accumulate);
	/* losses[m] from logits[M,V]; with `gradient`, the gradient times loss_scale overwrites the
	 * logits. */
	void (*cross_entropy)(struct ops *ops, float *losses, float *logits, const int32_t *targets,
		int M, int V, bool gradient);
	/* *sum = or += (accumulate) the losses, in fp64: each LOSS_BLOCK is summed in index order, then
	 * these sums are. */
	void (*sum_losses)(struct ops *ops, double *sum, const float *losses, size_t count,
		int accumulate);

	/* AdamW (Loshchilov and Hutter, arXiv 1711.05101) on `count` elements, with explicit fma; decay
	 * 0 for tensors that do not decay. g = grad·clip. Reads `from` and writes `to`, which may be
	 * `from`; `compute` (may be to->weights) gets the new weights in the compute type. A masked
	 * step leaves weights and moments as they are. NULL with device memory. */
	void (*adamw)(struct ops *ops, const struct adamw_state *to, const struct adamw_state *from,
		float *compute, const float *grad, size_t count, int decay);
	/* With device memory: the same on all these chunks of the arenas at once; the chunks lie there,
	 * too. Else NULL. */
	void (*adamw_chunks)(struct ops *ops, const struct adamw_state *to,
		const struct adamw_state *from, float *compute, const float *grad,
		const struct adamw_chunk *chunks, size_t count);
	/* sums[i] = fp64 sum of squares of elements [i·NORM_BLOCK, (i+1)·NORM_BLOCK) of x[count], by a
	 * fixed tree. */
	void (*square_sums)(struct ops *ops, double *sums, const float *x, size_t count);
	/* out[i] = a[i] + b[i], the addition of the canonical reduction; out may be a or b. */
	void (*add)(struct ops *ops, float *out, const float *a, const float *b, size_t count);
	/* Does all additions above the ranks' pieces at once. For each i < elements it uses a stack: it
	 * pushes piece n, then additions[n] times (tree_additions) adds the two topmost, the lower one
	 * first. out[i] gets what is left; out may be a piece. At most OPS_TREE_REDUCE_MAX pieces. NULL
	 * where that is no faster. */
	void (*tree_reduce)(struct ops *ops, float *out, float *const *pieces, const int *additions,
		int count, size_t elements);
	/* out[i] = 0 */
	void (*zero)(struct ops *ops, float *out, size_t count);
};

/* Makes the current *ops->params take effect from the next op on. */
static inline void ops_put_params(struct ops *ops)
{
	if (ops->put_params)
		ops->put_params(ops);
}

/* Creates the CPU's ops: oneDNN's products where it was found at build time and `plain` is false,
 * else plain C throughout. NULL when out of memory. Free it with ops->destroy. */
struct ops *ops_cpu_create(bool plain, struct err *err);

/* Chooses the instruction set of the CPU's kernels: "auto" (the best this CPU has), "avx512",
 * "avx2" or "default" (any x86-64). Call it before the first ops_cpu_create; fails with EXIT_USAGE
 * where the name is unknown or the CPU lacks the instruction set. */
int ops_cpu_pin_isa(const char *name, struct err *err);
/* The instruction set in effect: "avx512", "avx2" or "default". */
const char *ops_cpu_isa(void);
/* What else the bits may depend on, such as "oneDNN 2.6.3, glibc 2.36"; static text. */
const char *ops_cpu_versions(void);

#endif
