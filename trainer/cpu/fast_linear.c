/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: tiled matrix products; bias and activation are applied to each tile while it is in
 * the cache. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

/* What is applied after a product, to its result [·, ld]. */
struct after {
	const struct kernels *kernels;
	float *result, *activated;
	const float *bias, *saved;
	size_t ld;
};

static size_t at(const struct after *after, const struct gemm_part *part)
{
	return (size_t)part->row * after->ld + (size_t)part->column;
}

static const float *bias_at(const struct after *after, const struct gemm_part *part)
{
	return after->bias ? after->bias + part->column : NULL;
}

static void after_bias(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;

	a->kernels->bias(a->result + at(a, part), bias_at(a, part), part->rows, part->columns, a->ld);
}

static void after_relu(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;

	a->kernels->bias_relu(a->result + at(a, part), bias_at(a, part), part->rows, part->columns,
		a->ld);
}

static void after_gelu(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;

	a->kernels->bias_gelu(a->activated + at(a, part), a->result + at(a, part), bias_at(a, part),
		part->rows, part->columns, a->ld);
}

static void after_relu_backward(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;

	a->kernels->relu_backward(a->result + at(a, part), a->saved + at(a, part), part->rows,
		part->columns, a->ld);
}

static void after_gelu_backward(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;

	a->kernels->gelu_backward(a->result + at(a, part), a->saved + at(a, part), part->rows,
		part->columns, a->ld);
}

static struct gemm forward_gemm(float *y, const float *x, const float *w, int M, int K, int N)
{
	return (struct gemm) { .a = x, .b = w, .c = y, .m = M, .n = N, .k = K };
}

static struct gemm backward_gemm(float *dx, const float *dy, const float *w, int M, int K, int N)
{
	return (struct gemm) { .a = dy, .b = w, .c = dx, .m = M, .n = K, .k = N, .b_transposed = true };
}

static void linear(struct ops *ops, float *y, const float *x, const float *w, const float *bias,
	int M, int K, int N)
{
	struct gemm gemm = forward_gemm(y, x, w, M, K, N);
	struct after after = { .kernels = cpu_of(ops)->kernels,
		.result = y,
		.bias = bias,
		.ld = (size_t)N };

	gemm_run(&gemm, bias ? after_bias : NULL, &after);
}

static void linear_gelu(struct ops *ops, float *y, float *pre, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	struct gemm gemm = forward_gemm(pre, x, w, M, K, N);
	struct after after = { .kernels = cpu_of(ops)->kernels,
		.result = pre,
		.activated = y,
		.bias = bias,
		.ld = (size_t)N };

	gemm_run(&gemm, after_gelu, &after);
}

static void linear_relu(struct ops *ops, float *y, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	struct gemm gemm = forward_gemm(y, x, w, M, K, N);
	struct after after = { .kernels = cpu_of(ops)->kernels,
		.result = y,
		.bias = bias,
		.ld = (size_t)N };

	gemm_run(&gemm, after_relu, &after);
}

static void linear_backward_input(struct ops *ops, float *dx, const float *dy, const float *w,
	int M, int K, int N)
{
	struct gemm gemm = backward_gemm(dx, dy, w, M, K, N);

	gemm_run(&gemm, NULL, NULL);
}

static void linear_backward_input_gelu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *pre, int M, int K, int N)
{
	struct gemm gemm = backward_gemm(dx, dy, w, M, K, N);
	struct after after = { .kernels = cpu_of(ops)->kernels,
		.result = dx,
		.saved = pre,
		.ld = (size_t)K };

	gemm_run(&gemm, after_gelu_backward, &after);
}

static void linear_backward_input_relu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *y, int M, int K, int N)
{
	struct gemm gemm = backward_gemm(dx, dy, w, M, K, N);
	struct after after = { .kernels = cpu_of(ops)->kernels,
		.result = dx,
		.saved = y,
		.ld = (size_t)K };

	gemm_run(&gemm, after_relu_backward, &after);
}

static void linear_backward_weight(struct ops *ops, float *dw, float *dbias, const float *x,
	const float *dy, int M, int K, int N, int accumulate)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;
	struct gemm gemm = { .a = x,
		.b = dy,
		.c = dw,
		.m = K,
		.n = N,
		.k = M,
		.a_transposed = true,
		.accumulate = accumulate };

	gemm_run(&gemm, NULL, NULL);
	if (!dbias)
		return;
#pragma omp parallel for
	for (int n = 0; n < N; n += COLUMNS)
		kernels->column_sums(dbias + n, dy + n, M, N - n < COLUMNS ? N - n : COLUMNS, (size_t)N,
			accumulate);
}

void fast_linear_install(struct ops *ops)
{
	ops->linear = linear;
	ops->linear_gelu = linear_gelu;
	ops->linear_relu = linear_relu;
	ops->linear_backward_input = linear_backward_input;
	ops->linear_backward_input_gelu = linear_backward_input_gelu;
	ops->linear_backward_input_relu = linear_backward_input_relu;
	ops->linear_backward_weight = linear_backward_weight;
}
