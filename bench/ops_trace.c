/* SPDX-License-Identifier: Apache-2.0 */
/* Each op's floor is written beside its call. M = rows, C = width, K/N = inputs/outputs, e = bytes
 * of an activation. Not counted are vectors of C elements and rows of the embedding that are read:
 * they repeat, so the cache has them. */
#include "bench/ops_trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/kernels/head.h" /* needs no CUDA */

#define ROWS_MOST 64
#define GEMM_PLANS_NOTED 128

struct ops_trace {
	struct ops ops; /* copy of inner's table: ops that are not noted go straight to inner, with the
					   same state */
	struct ops *inner;
	struct trace_clock clock;
	struct trace_row rows[ROWS_MOST];
	struct trace_gemm plans[GEMM_PLANS_NOTED];
	size_t row_count, gemm_count;
	int *calls; /* [call_count] the row of each call; call i lies between moments 2·i and 2·i + 1 */
	size_t call_count, call_room;
	bool failed;
	const struct adamw_chunk *chunks; /* [chunk_count], of the last update */
	size_t chunk_count;
	double chunk_elements;
};

/* The least that a call costs besides its matrix products. */
struct cost {
	double bytes, saved, flops; /* `saved`: the part of the bytes that a product could save */
};

static struct ops_trace *trace_of(struct ops *ops)
{
	return (struct ops_trace *)(void *)ops;
}

/* ---- notes ---- */

static int row_of(struct ops_trace *trace, const char *name)
{
	for (size_t i = 0; i < trace->row_count; i++)
		if (strcmp(trace->rows[i].name, name) == 0)
			return (int)i;
	if (trace->row_count == ROWS_MOST) {
		trace->failed = true;
		return 0;
	}
	snprintf(trace->rows[trace->row_count].name, sizeof trace->rows[0].name, "%s", name);
	return (int)trace->row_count++;
}

/* Returns the call's row. */
__attribute__((format(printf, 3, 4))) static int begin(struct ops_trace *trace,
	const struct cost *cost, const char *format, ...)
{
	char name[sizeof trace->rows[0].name];
	va_list args;
	va_start(args, format);
	vsnprintf(name, sizeof name, format, args);
	va_end(args);
	if (!trace->failed && trace->call_count == trace->call_room) {
		size_t room = trace->call_room ? 2 * trace->call_room : 1024;
		int *calls = realloc(trace->calls, room * sizeof *calls);
		if (!calls) {
			trace->failed = true;
			return 0;
		}
		trace->calls = calls;
		trace->call_room = room;
	}
	int row = trace->failed ? 0 : row_of(trace, name);
	if (trace->failed)
		return 0;
	trace->rows[row].calls++;
	trace->rows[row].bytes += cost->bytes;
	trace->rows[row].step_bytes += cost->bytes - cost->saved;
	trace->rows[row].flops += cost->flops;
	trace->calls[trace->call_count] = row;
	trace->clock.record(trace->clock.arg, 2 * trace->call_count);
	return row;
}

static void end(struct ops_trace *trace)
{
	if (!trace->failed)
		trace->clock.record(trace->clock.arg, 2 * trace->call_count++ + 1);
}

static void multiplies(struct ops_trace *trace, int row, const struct gemm *gemm)
{
	for (size_t i = 0; i < trace->gemm_count; i++)
		if (trace->plans[i].row == row && gemm_equal(&trace->plans[i].gemm, gemm)) {
			trace->plans[i].count++;
			return;
		}
	if (trace->gemm_count == GEMM_PLANS_NOTED)
		trace->failed = true;
	else
		trace->plans[trace->gemm_count++] = (struct trace_gemm) { *gemm, row, 1 };
}

static enum gemm_type type_of(const struct ops *ops)
{
	return ops->element == 2 ? GEMM_BF16 : GEMM_FP32;
}

#define NOTED(needs, call, ...) \
	struct ops_trace *trace = trace_of(ops); \
	struct ops *inner = trace->inner; \
	const double e = (double)ops->element; \
	const struct cost least = needs; \
	(void)e; \
	int row = begin(trace, &least, __VA_ARGS__); \
	inner->call; \
	end(trace); \
	(void)row

#define COST(...) \
	{ \
		__VA_ARGS__ \
	}

/* ---- passes ---- */

static void embedding(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	const double M = (double)B * T;
	NOTED(COST(.bytes = M * C * e + (double)T * C * e + 4 * M),
		embedding(inner, out, tokens, wte, wpe, B, T, C), "embedding");
}

static void embedding_backward(struct ops *ops, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate)
{
	const double M = (double)B * T;
	NOTED(COST(.bytes = M * C * e + 4 * M + (accumulate ? 8 : 4) * (double)T * C),
		embedding_backward(inner, dwte, dwpe, dout, tokens, B, T, C, V, accumulate),
		"embedding backward");
}

/* With a residual, the sum is written too. */
static void layernorm(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
	const float *x, const float *add, const float *gamma, const float *beta, int M, int C)
{
	NOTED(COST(.bytes = (add ? 4 : 2) * (double)M * C * e + 8.0 * M),
		layernorm(inner, sum, y, mean, rstd, x, add, gamma, beta, M, C), "layernorm%s",
		add ? " with residual" : "");
}

static void layernorm_backward(struct ops *ops, float *dx, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
	int M, int C, int accumulate_dx, int accumulate)
{
	NOTED(COST(.bytes = (3 + (accumulate_dx != 0)) * (double)M * C * e + 8.0 * M),
		layernorm_backward(inner, dx, dgamma, dbeta, dy, x, gamma, mean, rstd, M, C, accumulate_dx,
			accumulate),
		"layernorm backward%s", accumulate_dx ? ", added" : "");
}

/* Two products forward and five backward, each over the half of the square that a causal head
 * needs. Bytes: q, k and v are read (backward: also y and dy), and the results are written. */
static void attention(struct ops *ops, float *y, float *lse, const float *qkv, int B, int T, int C,
	int H)
{
	const double M = (double)B * T;
	NOTED(COST(.bytes = 4 * M * C * e + 4 * M * H, .flops = 2 * M * (T + 1) * C),
		attention(inner, y, lse, qkv, B, T, C, H), "attention");
}

static void attention_backward(struct ops *ops, float *dqkv, const float *dy, const float *qkv,
	const float *y, const float *lse, int B, int T, int C, int H)
{
	const double M = (double)B * T;
	NOTED(COST(.bytes = 8 * M * C * e + 4 * M * H, .flops = 5 * M * (T + 1) * C),
		attention_backward(inner, dqkv, dy, qkv, y, lse, B, T, C, H), "attention backward");
}

/* Reads the gradient, the master weight and both moments; writes the latter three and the weight in
 * the compute type. */
static void adamw(struct ops *ops, const struct adamw_state *to, const struct adamw_state *from,
	float *compute, const float *grad, size_t count, int decay)
{
	NOTED(COST(.bytes = (28 + (compute != to->weights ? e : 0)) * (double)count),
		adamw(inner, to, from, compute, grad, count, decay), "adamw");
}

/* Elements of all chunks; the device is asked once. */
static double chunk_elements(struct ops_trace *trace, const struct adamw_chunk *chunks,
	size_t count)
{
	if (trace->chunks == chunks && trace->chunk_count == count)
		return trace->chunk_elements;
	struct adamw_chunk *copy = calloc(count, sizeof *copy);
	double elements = 0;
	if (!copy) {
		trace->failed = true;
		return 0;
	}
	if (device_has_memory(trace->inner->device))
		trace->inner->device->copy_out(trace->inner->device, copy, chunks, count * sizeof *copy);
	else
		memcpy(copy, chunks, count * sizeof *copy);
	for (size_t i = 0; i < count; i++)
		elements += copy[i].count;
	free(copy);
	trace->chunks = chunks;
	trace->chunk_count = count;
	return trace->chunk_elements = elements;
}

static void adamw_chunks(struct ops *ops, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad,
	const struct adamw_chunk *chunks, size_t count)
{
	const double elements = chunk_elements(trace_of(ops), chunks, count);
	NOTED(COST(.bytes = (28 + (compute != to->weights ? e : 0)) * elements),
		adamw_chunks(inner, to, from, compute, grad, chunks, count), "adamw");
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	NOTED(COST(.bytes = 4.0 * (double)count), square_sums(inner, sums, x, count), "gradient norm");
}

static void sum_losses(struct ops *ops, double *sum, const float *losses, size_t count,
	int accumulate)
{
	NOTED(COST(.bytes = 4.0 * (double)count), sum_losses(inner, sum, losses, count, accumulate),
		"sum of losses");
}

/* Sums slots of the same rank: with another order of sums, no such addition would be needed. */
static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	const double bytes = 12.0 * (double)count;
	NOTED(COST(.bytes = bytes, .saved = bytes), add(inner, out, a, b, count), "sum of slots");
}

/* ---- products; biases, GELU and its derivative are their epilogues ---- */

static void forward(struct ops_trace *trace, int row, enum gemm_epilogue epilogue, int M, int K,
	int N)
{
	enum gemm_type type = type_of(&trace->ops);
	multiplies(trace, row,
		&(struct gemm) { .rows = M,
			.columns = N,
			.depth = K,
			.in = type,
			.out = type,
			.epilogue = epilogue });
}

static void backward(struct ops_trace *trace, int row, enum gemm_epilogue epilogue, int M, int K,
	int N)
{
	enum gemm_type type = type_of(&trace->ops);
	multiplies(trace, row,
		&(struct gemm) { .rows = M,
			.columns = K,
			.depth = N,
			.w_transposed = true,
			.in = type,
			.out = type,
			.epilogue = epilogue });
}

static void weight(struct ops_trace *trace, int row, int M, int K, int N, bool adds)
{
	multiplies(trace, row,
		&(struct gemm) { .rows = K,
			.columns = N,
			.depth = M,
			.x_transposed = true,
			.in = type_of(&trace->ops),
			.out = GEMM_FP32,
			.adds = adds });
}

static void linear(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
	int M, int K, int N)
{
	NOTED(COST(.bytes = 0), linear(inner, y, x, w, bias, M, K, N), "linear %d to %d", K, N);
	forward(trace, row, bias ? GEMM_BIAS : GEMM_PLAIN, M, K, N);
}

static void linear_gelu(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	NOTED(COST(.bytes = 0), linear_gelu(inner, y, pre, x, w, bias, M, K, N),
		"linear %d to %d, GELU", K, N);
	forward(trace, row, GEMM_BIAS_GELU, M, K, N);
}

static void linear_backward_input(struct ops *ops, float *dx, const float *dy, const float *w,
	int M, int K, int N)
{
	NOTED(COST(.bytes = 0), linear_backward_input(inner, dx, dy, w, M, K, N),
		"gradient of the input, %d from %d", K, N);
	backward(trace, row, GEMM_PLAIN, M, K, N);
}

static void linear_backward_input_gelu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *pre, int M, int K, int N)
{
	NOTED(COST(.bytes = 0), linear_backward_input_gelu(inner, dx, dy, w, pre, M, K, N),
		"gradient of the input, %d from %d, GELU", K, N);
	backward(trace, row, GEMM_GELU_GRAD, M, K, N);
}

/* The bias' gradient reads again what the product reads. */
static void linear_backward_weight(struct ops *ops, float *dw, float *dbias, const float *x,
	const float *dy, int M, int K, int N, int accumulate)
{
	const double bytes = dbias ? (double)M * N * (double)ops->element : 0;
	NOTED(COST(.bytes = bytes, .saved = bytes),
		linear_backward_weight(inner, dw, dbias, x, dy, M, K, N, accumulate),
		"gradient of weights %d to %d", K, N);
	weight(trace, row, M, K, N, accumulate != 0);
}

/* Works in the same chunks as the GPU's head. The logits are read once and their gradient is
 * written once. */
static void head_loss(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	const int P = OPS_VOCABULARY_ROWS(V),
			  most = (int)head_chunk_rows((size_t)M, (size_t)P, ops->element);
	NOTED(COST(.bytes = (dx ? 2 : 1) * (double)M * P * e + 8.0 * M),
		head_loss(inner, losses, dx, dwte, x, wte, targets, M, C, V, accumulate), "head and loss");
	for (int first = 0; first < M; first += most) {
		int rows = M - first < most ? M - first : most;
		backward(trace, row, GEMM_PLAIN, rows, P, C); /* logits = x · wteᵀ */
		if (!dx)
			continue;
		forward(trace, row, GEMM_PLAIN, rows, P, C);
		weight(trace, row, rows, P, C, accumulate || first > 0);
	}
}

/* ---- the trace ---- */

struct ops_trace *ops_trace_create(struct ops *inner, const struct trace_clock *clock,
	struct err *err)
{
	struct ops_trace *trace = calloc(1, sizeof *trace);
	if (!trace) {
		err_set(err, "trace: out of memory");
		return NULL;
	}
	trace->ops = *inner;
	trace->inner = inner;
	trace->clock = *clock;
	trace->ops.embedding = embedding;
	trace->ops.embedding_backward = embedding_backward;
	trace->ops.layernorm = layernorm;
	trace->ops.layernorm_backward = layernorm_backward;
	trace->ops.linear = linear;
	trace->ops.linear_gelu = linear_gelu;
	trace->ops.linear_backward_input = linear_backward_input;
	trace->ops.linear_backward_input_gelu = linear_backward_input_gelu;
	trace->ops.linear_backward_weight = linear_backward_weight;
	trace->ops.attention = attention;
	trace->ops.attention_backward = attention_backward;
	trace->ops.head_loss = head_loss;
	if (inner->adamw)
		trace->ops.adamw = adamw;
	if (inner->adamw_chunks)
		trace->ops.adamw_chunks = adamw_chunks;
	trace->ops.square_sums = square_sums;
	trace->ops.sum_losses = sum_losses;
	trace->ops.add = add;
	return trace;
}

void ops_trace_destroy(struct ops_trace *trace)
{
	if (!trace)
		return;
	free(trace->calls);
	free(trace);
}

struct ops *ops_trace_table(struct ops_trace *trace)
{
	return &trace->ops;
}

void ops_trace_clear(struct ops_trace *trace)
{
	memset(trace->rows, 0, sizeof trace->rows);
	trace->row_count = trace->gemm_count = trace->call_count = 0;
}

int ops_trace_settle(struct ops_trace *trace, struct err *err)
{
	if (trace->failed)
		return err_set(err, "trace: couldn't note all operations: out of room");
	for (size_t i = 0; i < trace->call_count; i++)
		trace->rows[trace->calls[i]].seconds +=
			trace->clock.seconds(trace->clock.arg, 2 * i, 2 * i + 1);
	trace->call_count = 0;
	return 0;
}

const struct trace_row *ops_trace_rows(const struct ops_trace *trace, size_t *count)
{
	*count = trace->row_count;
	return trace->rows;
}

const struct trace_gemm *ops_trace_gemms(const struct ops_trace *trace, size_t *count)
{
	*count = trace->gemm_count;
	return trace->plans;
}
