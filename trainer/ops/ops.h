/* SPDX-License-Identifier: Apache-2.0 */
/* What a device can compute: the operations that every model is written in. Two tables of functions
 * implement it, trainer/cpu/ and trainer/cuda/.
 *
 * The contract:
 *  - no op takes a scalar of the step by value: those lie in one struct step_params, written once a
 * step;
 *  - after ops_prepare() no op allocates, synchronises with the host or chooses an algorithm;
 *  - a backward op writes to the fp32 destination that the caller names; `accumulate` 1 adds to it,
 * 0 overwrites it;
 *  - the bits of a result depend on the shapes and the inputs, never on the number of threads.
 * Shapes: M = rows (batch × positions), C = width, K/N = inputs/outputs of a linear layer, V =
 * vocabulary, B = batch, T = positions, H = heads, D = C / H. All matrices are row-major; weights
 * are [in, out] as in Hugging Face's Conv1D.
 *
 * Memory is the device's: whatever `alloc` gives. Where the host can't touch that
 * (ops_has_device_memory), tokens, targets and inputs are copied in first, and copied out is what
 * the host reads; no op takes or gives host memory. Activations, and the weights that passes read,
 * have the device's compute type of `element` bytes: with 2 (bf16) a float * to them is an address
 * and no more. Gradients of weights, master weights, moments, losses, mean, rstd and lse are fp32
 * always. */
#ifndef MUSTER_OPS_H
#define MUSTER_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct ops;

/* The numbers of one step, in the device's memory. */
struct step_params {
	uint64_t step; /* counted from 1 */
	float learning_rate;
	float beta1, beta2, epsilon, weight_decay;
	float bias1, bias2; /* 1 / (1 - beta^step) */
	float clip;         /* factor of the gradients: min(1, max_norm / norm) */
	float loss_scale;   /* 1 / valid tokens of the global batch */
	int32_t masked;     /* 1: the norm or the loss is not finite, adamw changes nothing */
};

/* What AdamW keeps of each element. */
struct adamw_state {
	float *weights, *m, *v;
};

/* Elements of one parameter that an update takes as one piece of work. */
struct adamw_chunk {
	uint64_t first;   /* its place in the arenas, */
	uint64_t moments; /* and in those of the moments, where they have no others' */
	uint32_t count;   /* at most ADAMW_CHUNK */
	uint32_t decay;   /* 1: the parameter decays */
};

#define ADAMW_CHUNK 2048

/* The largest shapes that will be asked for; 0 for what a model does not use. */
struct ops_shapes {
	int batch, positions, width, heads, vocabulary, hidden;
};

/* Elements of one block of the gradient norm: one fp64 sum of squares each. */
#define NORM_BLOCK 4096

/* Losses that are summed one after the other; then these sums are. */
#define LOSS_BLOCK 256

/* Pieces that are added at once. */
#define OPS_TREE_REDUCE_MAX 240

/* Rows of an embedding: whole tiles of a matrix product. Those behind the vocabulary are zero. */
#define OPS_VOCABULARY_ALIGN 128
#define OPS_VOCABULARY_ROWS(V) \
	(((V) + OPS_VOCABULARY_ALIGN - 1) / OPS_VOCABULARY_ALIGN * OPS_VOCABULARY_ALIGN)

/* Copies out of a device whose memory the host can't touch, beside what it computes: for snapshots.
 * A transfer is a number below OPS_TRANSFERS that stands for the copies up to its end. Any thread
 * may call these. What returns an int gives -1 for an error, which is the snapshot's and not the
 * training's. */
#define OPS_TRANSFERS 8

struct ops_copy_stream {
	/* Keeps whole pages of the host in their places until unpin, so that copies into them run by
	 * themselves. */
	int (*pin)(struct ops *ops, void *pages, size_t bytes, struct err *err);
	void (*unpin)(struct ops *ops, void *pages);
	/* Such memory; NULL on error. */
	void *(*alloc)(struct ops *ops, size_t bytes, struct err *err);
	void (*release)(struct ops *ops, void *p);
	/* The copies that are given from now on come behind what ops were called so far, and are the
	 * transfer's up to its end. */
	int (*begin)(struct ops *ops, int transfer, struct err *err);
	int (*copy)(struct ops *ops, void *pinned, const void *device, size_t bytes, struct err *err);
	int (*end)(struct ops *ops, int transfer, struct err *err);
	/* 1 when all copies up to the transfer's end are done, else 0. */
	int (*done)(struct ops *ops, int transfer, struct err *err);
	/* Ops that are called from now on begin, on the device, when the transfer is done; the host
	 * goes on. 0 where it is done already, else 1. */
	int (*wait_transfer)(struct ops *ops, int transfer, struct err *err);
	/* Of a transfer that is done: seconds for which such a wait made the device stand still, and
	 * that its copies took. */
	double (*waited)(struct ops *ops, int transfer);
	double (*took)(struct ops *ops, int transfer);
};

struct ops {
	const char *name;             /* "cpu-dnnl", "cpu-plain", "cuda" */
	void *state;                  /* the implementation's own */
	const char *card, *libraries; /* of a GPU, for the numerics record; else NULL */
	size_t element;               /* bytes of an activation, 4 or 2 */
	struct step_params
		*params; /* the trainer's copy, for it to write; ops see it after ops_put_params() */

	int (*prepare)(struct ops *ops, const struct ops_shapes *shapes, struct err *err);
	void (*destroy)(struct ops *ops);
	void *(*alloc)(struct ops *ops,
		size_t bytes); /* zeroed, 64-byte aligned; NULL when out of memory */
	void (*release)(struct ops *ops, void *p);

	/* NULL, all of these, where memory is the host's. Copies wait for the device; the host may use
	 * its side as soon as they return. */
	void (*copy_in)(struct ops *ops, void *device, const void *host, size_t bytes);
	void (*copy_out)(struct ops *ops, void *host, const void *device, size_t bytes);
	/* copy_in of what each pass needs: it waits for nothing but a place to keep it, of which there
	 * are as many as a device falls behind. */
	void (*put)(struct ops *ops, void *device, const void *host, size_t bytes);
	void (*put_params)(struct ops *ops);
	const struct ops_copy_stream *copy_stream;
	/* The weights that passes read from master weights: compute[i] = weights[i] in the compute
	 * type. NULL with element 4, too. */
	void (*cast)(struct ops *ops, float *compute, const float *weights, size_t count);
	/* Where there are algorithms to choose, else NULL: chooses for the shapes of prepare() whatever
	 * has none yet; all that were chosen, as a malloc'ed line of text; takes over those of such a
	 * text, or refuses them. */
	int (*choose)(struct ops *ops, struct err *err);
	/* The same by timing all that there are, within so many seconds; what that is not enough for is
	 * chosen without. Says what it found. */
	int (*tune)(struct ops *ops, double seconds, struct err *err);
	char *(*algorithms)(struct ops *ops);
	int (*adopt)(struct ops *ops, const char *text, struct err *err);
	/* 0, or -1 with the first error of all calls so far: ops themselves have no way to fail. */
	int (*check)(struct ops *ops, struct err *err);

	/* NULL, all of these, where ops have done what they do when they return. Elsewhere they are
	 * queued on a device, and one more thread, the communicator's, has a stream of its own there
	 * for what it calls (add, tree_reduce, square_sums). Makes it, once; returns its stream, NULL
	 * on error. */
	void *(*comm_stream)(struct ops *ops, struct err *err);
	/* Records an event behind what the training's thread has queued so far. */
	uint64_t (*record_event)(struct ops *ops);
	/* The calling thread is that stream's from now on, and what it queues begins when what is
	 * before the event has ended. */
	void (*wait_event)(struct ops *ops, uint64_t record_event);
	/* Whether that stream has ended all that was queued on it: 1, 0 not yet, -1 with the error. */
	int (*settled)(struct ops *ops, struct err *err);

	/* NULL, all of these, where nothing can be replayed. What the training's thread queues between
	 * capture() and captured() is not done, but kept with its addresses and numbers, and done by
	 * each replay(): the same bits. Neither copies of host memory nor waits may be among it. It may
	 * have up to `events` places, each told by capture_event() with its number from 0 on. false and
	 * NULL: that can't be captured, and nothing was done, nor is it an error of the ops. A graph
	 * may still run when it is dropped. */
	bool (*capture)(struct ops *ops, int events);
	void (*capture_event)(struct ops *ops, int number);
	void *(*captured)(struct ops *ops);
	void (*replay)(struct ops *ops, void *graph);
	/* From now on record_event() is that place of the graph that was replayed last; -1: as usual.
	 */
	void (*replayed_to)(struct ops *ops, int number);
	void (*drop_graph)(struct ops *ops, void *graph);

	/* out[M,C] = wte[tokens[m],:] + wpe[m % T,:]; M = B·T */
	void (*embedding)(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
		const float *wpe, int B, int T, int C);
	/* dwte[V,C] += dout at tokens; dwpe[T,C] = or += the sum over B. Rows of dwte that no token
	 * names are left alone. Sums run in ascending m. dwte always accumulates (the head wrote it
	 * before); accumulate is for dwpe. */
	void (*embedding_backward)(struct ops *ops, float *dwte, float *dwpe, const float *dout,
		const int32_t *tokens, int B, int T, int C, int V, int accumulate);

	/* y[M,C] = (x - mean)·rstd·gamma + beta over C, epsilon 1e-5; saves mean[M] and rstd[M]. With
	 * `add` not NULL first sum[M,C] = x + add and the norm is of sum (residual + layernorm in one
	 * pass); sum may be x. */
	void (*layernorm)(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
		const float *x, const float *add, const float *gamma, const float *beta, int M, int C);
	/* dx[M,C] = or += (accumulate_dx), dgamma[C] and dbeta[C] = or += (accumulate). x is what the
	 * norm was of. */
	void (*layernorm_backward)(struct ops *ops, float *dx, float *dgamma, float *dbeta,
		const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
		int M, int C, int accumulate_dx, int accumulate);

	/* Batch normalisation over the rows, in parts: between them ranks join what they have
	 * (batchnorm.h). Rows m with targets[m] < 0 do not count. Sums are fp64. moments[2,C]: the mean
	 * over the rows, and the sum of the squared distances from it. */
	void (*batchnorm_moments)(struct ops *ops, double *moments, const float *x,
		const int32_t *targets, int M, int C);
	/* y[M,C] = max(0, (x - mean)·rstd·gamma + beta), all of these [C] */
	void (*batchnorm_relu)(struct ops *ops, float *y, const float *x, const float *mean,
		const float *rstd, const float *gamma, const float *beta, int M, int C);
	/* sums[2,C]: of dy·n, n = (x - mean)·rstd, and of dy; dgamma[C] and dbeta[C] = or += the same
	 */
	void (*batchnorm_sums)(struct ops *ops, double *sums, float *dgamma, float *dbeta,
		const float *dy, const float *x, const float *mean, const float *rstd,
		const int32_t *targets, int M, int C, int accumulate);
	/* dx[M,C] = (dy - means[1] - n·means[0])·gamma·rstd with means[2,C], the sums over all ranks ÷
	 * their rows; 0 in rows that do not count. dx may be dy. */
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
	 * targets[m] (0 where targets[m] < 0: no such token). With dx not NULL also the gradients, each
	 * times params->loss_scale: dx[M,C] = …, dwte[V,C] = or += …. The logits need not exist as a
	 * whole. In device memory wte and dwte have OPS_VOCABULARY_ROWS(V) rows, and the products are
	 * of all of them. */
	void (*head_loss)(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
		const float *wte, const int32_t *targets, int M, int C, int V, int accumulate);
	/* losses[m] from logits[M,V]; with `gradient` the logits are overwritten by their gradient
	 * times loss_scale. */
	void (*cross_entropy)(struct ops *ops, float *losses, float *logits, const int32_t *targets,
		int M, int V, bool gradient);
	/* *sum = or += (accumulate) the losses, in fp64: those of each LOSS_BLOCK in index order, then
	 * these sums in theirs. */
	void (*sum_losses)(struct ops *ops, double *sum, const float *losses, size_t count,
		int accumulate);

	/* AdamW (Loshchilov and Hutter, arXiv 1711.05101) on `count` elements, with explicit fma; decay
	 * 0 for tensors that do not decay. g = grad·clip; `to` (may be `from`) gets what becomes of
	 * `from`, `compute` (may be to->weights) the new weights in the compute type. A masked step
	 * leaves both as they are. */
	void (*adamw)(struct ops *ops, const struct adamw_state *to, const struct adamw_state *from,
		float *compute, const float *grad, size_t count, int decay);
	/* The same on all of these chunks of the arenas at once; the chunks are in the ops' memory,
	 * too. NULL where that gains nothing. */
	void (*adamw_chunks)(struct ops *ops, const struct adamw_state *to,
		const struct adamw_state *from, float *compute, const float *grad,
		const struct adamw_chunk *chunks, size_t count);
	/* sums[i] = fp64 sum of squares of elements [i·NORM_BLOCK, (i+1)·NORM_BLOCK) of x[count], by a
	 * fixed tree. */
	void (*square_sums)(struct ops *ops, double *sums, const float *x, size_t count);
	/* out[i] = a[i] + b[i], the one addition of the canonical reduction; out may be a or b. */
	void (*add)(struct ops *ops, float *out, const float *a, const float *b, size_t count);
	/* All additions above the ranks' pieces at once, for each i < elements on a stack: piece n is
	 * pushed, then the two on top are added, the lower one first, additions[n] times
	 * (tree_additions). out[i] gets what is left; out may be a piece. At most OPS_TREE_REDUCE_MAX
	 * pieces. NULL where that gains nothing. */
	void (*tree_reduce)(struct ops *ops, float *out, float *const *pieces, const int *additions,
		int count, size_t elements);
	/* out[i] = 0 */
	void (*zero)(struct ops *ops, float *out, size_t count);
};

/* Whether the host can't touch what `alloc` gives. */
static inline bool ops_has_device_memory(const struct ops *ops)
{
	return ops->copy_in != NULL;
}

/* From the next op on *ops->params is as it stands. */
static inline void ops_put_params(struct ops *ops)
{
	if (ops->put_params)
		ops->put_params(ops);
}

static inline int ops_check(struct ops *ops, struct err *err)
{
	return ops->check ? ops->check(ops, err) : 0;
}

/* The CPU's ops: oneDNN's products where it was found at build time and `plain` is false, else
 * plain C throughout. NULL when out of memory. Freed by ops->destroy. */
struct ops *ops_cpu_create(bool plain, struct err *err);

/* Chooses the instruction set of the CPU's kernels: "auto" (the best this CPU has), "avx512",
 * "avx2" or "default" (any x86-64). Call it before the first ops_cpu_create; fails with EXIT_USAGE
 * where the name is unknown or the CPU has not got it. */
int ops_cpu_pin_isa(const char *name, struct err *err);
/* The one in effect: "avx512", "avx2" or "default". */
const char *ops_cpu_isa(void);
/* What else the bits may depend on, such as "oneDNN 2.6.3, glibc 2.36"; static text. */
const char *ops_cpu_versions(void);

#endif
