/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: tiled matrix products; bias and activation are applied to each tile while it is in
 * the cache. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

/* What is applied after a product, to its result [·, ld]. */
struct after {
	void (*apply)(float *result, const float *other, int rows, int cols, size_t ld);
	const struct kernels *kernels;
	float *result, *activated;
	const float *bias, *saved; /* one of them is `other`, if any */
	size_t ld;
};

static void apply(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;
	size_t at = (size_t)part->row * a->ld + (size_t)part->column;
	const float *other = a->bias ? a->bias + part->column : a->saved ? a->saved + at : NULL;

	a->apply(a->result + at, other, part->rows, part->columns, a->ld);
}

static void apply_gelu(void *arg, const struct gemm_part *part)
{
	const struct after *a = arg;
	size_t at = (size_t)part->row * a->ld + (size_t)part->column;

	a->kernels->bias_gelu(a->activated + at, a->result + at,
		a->bias ? a->bias + part->column : NULL, part->rows, part->columns, a->ld);
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
	struct after after = { .apply = cpu_of(ops)->kernels->bias,
		.result = y,
		.bias = bias,
		.ld = (size_t)N };

	gemm_run(&gemm, bias ? apply : NULL, &after);
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

	gemm_run(&gemm, apply_gelu, &after);
}

static void linear_relu(struct ops *ops, float *y, const float *x, const float *w,
	const float *bias, int M, int K, int N)
{
	struct gemm gemm = forward_gemm(y, x, w, M, K, N);
	struct after after = { .apply = cpu_of(ops)->kernels->bias_relu,
		.result = y,
		.bias = bias,
		.ld = (size_t)N };

	gemm_run(&gemm, apply, &after);
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
	struct after after = { .apply = cpu_of(ops)->kernels->gelu_backward,
		.result = dx,
		.saved = pre,
		.ld = (size_t)K };

	gemm_run(&gemm, apply, &after);
}

static void linear_backward_input_relu(struct ops *ops, float *dx, const float *dy, const float *w,
	const float *y, int M, int K, int N)
{
	struct gemm gemm = backward_gemm(dx, dy, w, M, K, N);
	struct after after = { .apply = cpu_of(ops)->kernels->relu_backward,
		.result = dx,
		.saved = y,
		.ld = (size_t)K };

	gemm_run(&gemm, apply, &after);
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
