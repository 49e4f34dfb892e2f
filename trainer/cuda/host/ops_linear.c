/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers and the head: matrix products with cuBLASLt's epilogues. Where it lacks one for a
 * shape, a kernel of ours follows the plain product. */
#include "trainer/cuda/host/ops_cuda_private.h"
#include "trainer/cuda/host/finish.h"
#include "trainer/cuda/kernels/add.h"
#include "trainer/cuda/kernels/cross_entropy.h"
#include "trainer/cuda/kernels/elements.h"
#include "trainer/cuda/kernels/head.h"

static enum gemm_type type_of(const struct ops_cuda *cuda)
{
	return cuda->type == CUDA_BF16 ? GEMM_BF16 : GEMM_FP32;
}

/* Computes a product with its epilogue. False if the library lacks the epilogue; then nothing is
 * computed. */
static bool multiply(struct ops *ops, const struct gemm *gemm, const struct gemm_operands *operands)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct err err = { 0 };
	if (!cuda_begin(ops->device))
		return true; /* an op has failed: nothing is computed any more */
	if (gemm->epilogue != GEMM_PLAIN && !gemm_is_there(cuda->engine, gemm, &err))
		return !cuda_note(ops->device, err.text[0] ? -1 : 0, &err);
	cuda_note(ops->device, gemm_launch(cuda->engine, gemm, operands, cuda->stream, &err), &err);
	return true;
}

/* Computes a product with its epilogue, by the library's, or by our kernel after the plain
 * product. */
static void multiply_and_finish(struct ops *ops, const struct gemm *gemm,
	const struct gemm_operands *operands)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct gemm plain = *gemm;
	if (multiply(ops, gemm, operands))
		return;
	plain.epilogue = GEMM_PLAIN;
	if (multiply(ops, &plain, operands))
		CUDA_RUN(ops->device, cuda_finish(gemm, operands, cuda->scratch, cuda->stream));
}

/* ---- forward: y[M,N] = x[M,K] · w[K,N] ---- */

static struct gemm forward_of(const struct ops *ops, enum gemm_epilogue epilogue, int M, int K,
	int N)
{
	enum gemm_type type = type_of(ops->state);
	return (struct gemm) { .rows = M,
		.columns = N,
		.depth = K,
		.in = type,
		.out = type,
		.epilogue = epilogue };
}

static void forward(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, enum gemm_epilogue epilogue, int M, int K, int N)
{
	struct gemm gemm = forward_of(ops, epilogue, M, K, N);
	multiply_and_finish(ops, &gemm,
		&(struct gemm_operands) { .d = y, .x = x, .w = w, .bias = bias, .kept = pre });
}

static void linear(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
	int M, int K, int N)
{
	forward(ops, y, NULL, x, w, bias, bias ? GEMM_BIAS : GEMM_PLAIN, M, K, N);
}

static void linear_gelu(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	forward(ops, y, pre, x, w, bias, GEMM_BIAS_GELU, M, K, N);
}

static void linear_relu(struct ops *ops, float *y, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	forward(ops, y, NULL, x, w, bias, GEMM_BIAS_RELU, M, K, N);
}

/* ---- backward ---- */

static struct gemm input_of(const struct ops *ops, enum gemm_epilogue epilogue, int M, int K, int N)
{
	enum gemm_type type = type_of(ops->state);
	return (struct gemm) { .rows = M,
		.columns = K,
		.depth = N,
		.w_transposed = true,
		.in = type,
		.out = type,
		.epilogue = epilogue };
}

static void linear_backward_input(struct ops *ops, float *dx, const float *dy, const float *w,
	int M, int K, int N)
{
	const struct gemm gemm = input_of(ops, GEMM_PLAIN, M, K, N);
	multiply(ops, &gemm, &(struct gemm_operands) { .d = dx, .x = dy, .w = w });
}

static void linear_backward_input_gelu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *pre, int M, int K, int N)
{
	const struct gemm gemm = input_of(ops, GEMM_GELU_GRAD, M, K, N);
	multiply_and_finish(ops, &gemm,
		&(struct gemm_operands) { .d = dx, .x = dy, .w = w, .kept = (void *)(uintptr_t)pre });
}

static void linear_backward_input_relu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *y, int M, int K, int N)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	linear_backward_input(ops, dx, dy, w, M, K, N);
	CUDA_RUN(ops->device,
		cuda_relu_backward(dx, dx, y, (size_t)M * (size_t)K, cuda->type, cuda->stream));
}

/* dw[K,N] = or += x[M,K]ᵀ · dy[M,N], in fp32 */
static struct gemm weight_of(const struct ops *ops, int M, int K, int N, bool adds)
{
	return (struct gemm) { .rows = K,
		.columns = N,
		.depth = M,
		.x_transposed = true,
		.in = type_of(ops->state),
		.out = GEMM_FP32,
		.adds = adds };
}

/* A kernel of ours computes the bias' gradient, unless tuning found the library's epilogue faster.
 * That epilogue overwrites its sums, so accumulating takes one more kernel. */
static void linear_backward_weight(struct ops *ops, float *dw, float *dbias, const float *x,
	const float *dy, int M, int K, int N, int accumulate)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	struct gemm gemm = weight_of(ops, M, K, N, accumulate != 0);
	struct gemm_operands operands = { .d = dw,
		.x = x,
		.w = dy,
		.sums = accumulate ? cuda->scratch : dbias };
	gemm.epilogue = dbias ? GEMM_BIAS_GRAD : GEMM_PLAIN;
	if (multiply(ops, &gemm, &operands)) {
		if (dbias && accumulate)
			CUDA_RUN(ops->device, cuda_add(dbias, dbias, cuda->scratch, (size_t)N, cuda->stream));
		return;
	}
	operands.sums = dbias;
	multiply_and_finish(ops, &gemm, &operands);
}

/* ---- the head ---- */

/* The operands of the head; a chunk is rows [first, first + rows) of x, targets and the results. */
struct head {
	float *losses, *dx, *dwte;
	const float *x, *wte;
	const int32_t *targets;
	int C, V;
};

static void *row_at(const struct ops *ops, const float *matrix, size_t row, int C)
{
	return (void *)((uintptr_t)matrix + row * (size_t)C * ops->element);
}

static void head_chunk(struct ops *ops, const struct head *h, size_t first, int rows, bool adds)
{
	struct ops_cuda *cuda = ops_cuda_of(ops);
	int P = OPS_VOCABULARY_ROWS(h->V);
	enum gemm_type type = type_of(cuda);
	const struct gemm logits = { .rows = rows,
		.columns = P,
		.depth = h->C,
		.w_transposed = true,
		.in = type,
		.out = type };
	const struct gemm dx = forward_of(ops, GEMM_PLAIN, rows, P, h->C),
					  dwte = weight_of(ops, rows, P, h->C, adds);
	const void *x = row_at(ops, h->x, first, h->C);
	multiply(ops, &logits, &(struct gemm_operands) { .d = cuda->logits, .x = x, .w = h->wte });
	if (!CUDA_RUN(ops->device,
			cuda_cross_entropy(h->losses + first, cuda->logits, h->targets + first,
				cuda->params_device, (size_t)rows, h->V, P, h->dx != NULL, cuda->type,
				cuda->stream))
		|| !h->dx)
		return;
	multiply(ops, &dx,
		&(struct gemm_operands) { .d = row_at(ops, h->dx, first, h->C),
			.x = cuda->logits,
			.w = h->wte });
	multiply(ops, &dwte, &(struct gemm_operands) { .d = h->dwte, .x = cuda->logits, .w = x });
}

static void head_loss(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	const struct head head = { losses, dx, dwte, x, wte, targets, C, V };
	size_t most = head_chunk_rows((size_t)M, (size_t)OPS_VOCABULARY_ROWS(V), ops->element);
	for (size_t first = 0; first < (size_t)M; first += most) {
		size_t left = (size_t)M - first;
		head_chunk(ops, &head, first, (int)(left < most ? left : most), accumulate || first > 0);
	}
}

void ops_cuda_linear_install(struct ops *ops)
{
	ops->linear = linear;
	ops->linear_gelu = linear_gelu;
	ops->linear_relu = linear_relu;
	ops->linear_backward_input = linear_backward_input;
	ops->linear_backward_input_gelu = linear_backward_input_gelu;
	ops->linear_backward_input_relu = linear_backward_input_relu;
	ops->linear_backward_weight = linear_backward_weight;
	ops->head_loss = head_loss;
}
