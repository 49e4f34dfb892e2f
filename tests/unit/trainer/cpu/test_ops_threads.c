/* SPDX-License-Identifier: Apache-2.0 */
/* ops: the bits of every fast operation are those of one thread, at every number of threads from 1
 * to 16 (threads_sample.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "tests/unit/trainer/cpu/threads_sample.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cpu/isa.h"
#include "trainer/cpu/gemm.h"

#define THREADS_MAX 16

static void threads(int n)
{
#ifdef _OPENMP
	omp_set_num_threads(n);
#endif
}

static void gemm_bits(int m, int n, int k, bool a_transposed, bool b_transposed)
{
	size_t count = (size_t)m * n;
	float *a = fixture_floats((size_t)m * k, 1, 1), *b = fixture_floats((size_t)k * n, 1, 2);
	float *one = fixture_floats(count, 1, 3), *many = fixture_floats(count, 1, 3),
		  *start = fixture_floats(count, 1, 3);
	struct gemm gemm = { a, b, one, m, n, k, a_transposed, b_transposed, true };
	char what[100];

	threads(1);
	gemm_run(&gemm, NULL, NULL);
	gemm.c = many;
	for (int t = 2; t <= THREADS_MAX; t = threads_sample_next(t)) {
		memcpy(many, start, count * sizeof(*many));
		threads(t);
		gemm_run(&gemm, NULL, NULL);
		snprintf(what, sizeof(what), "%dx%dx%d%s%s at %d threads", m, n, k,
			a_transposed ? " a'" : "", b_transposed ? " b'" : "", t);
		fixture_same_bits(what, many, one, count * sizeof(*one));
	}
	free(a), free(b), free(one), free(many), free(start);
}

/* The products of GPT-2: forward, backward to the input, backward to the weights. */
static void linear_bits(int M, int K, int N)
{
	gemm_bits(M, N, K, false, false);
	gemm_bits(M, K, N, false, true);
	gemm_bits(K, N, M, true, false);
}

static void gemm_plans_of_gpt2(void **state)
{
	static const int widths[] = { 128, 384, 768 }, rows[] = { 64, 200, 512 };

	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++) {
			int C = widths[i], M = rows[j];

			if (C == 768 && M == 512)
				M = 256; /* keeps the test short; the grid is not the same as at 200 */
			linear_bits(M, C, 3 * C);
			linear_bits(M, C, C);
			linear_bits(M, C, 4 * C);
			linear_bits(M, 4 * C, C);
		}
}

static void gemm_plans_of_the_head(void **state)
{
	static const int sizes[][2] = { { 384, 257 }, { 128, 5021 } };

	for (int i = 0; i < 2; i++) {
		gemm_bits(512, sizes[i][1], sizes[i][0], false, true);
		gemm_bits(512, sizes[i][0], sizes[i][1], false, false);
		gemm_bits(sizes[i][1], sizes[i][0], 512, true, false);
	}
}

/* Shapes for which oneDNN's own threading changes the bits: a transposed operand or a small result,
 * and a large k. */
static void gemm_plans_that_are_hard(void **state)
{
	gemm_bits(384, 384, 2048, false, true);
	gemm_bits(128, 256, 16384, false, true);
	gemm_bits(64, 64, 65536, false, false);
	gemm_bits(64, 64, 65536, true, true);
	gemm_bits(3, 7, 30000, false, true);
	gemm_bits(1, 1, 1, false, false);
}

/* Results of everything that has threads of its own. */
static float *run_all(struct ops *ops, size_t *count)
{
	enum { B = 3, T = 130, C = 192, H = 3, V = 257, M = B * T };
	float *x = fixture_floats(M * C, 2, 1), *dy = fixture_floats(M * C, 1, 2),
		  *qkv = fixture_floats(3 * M * C, 2, 3);
	float *gamma = fixture_floats(C, 1, 4), *wte = fixture_floats(V * C, 1, 5);
	int32_t *tokens = fixture_tokens(M, 20, 6); /* few tokens: rows of dwte have many sums */
	float *all, *p;
	float *mean, *rstd, *y, *lse;

	*count = (size_t)(11 * M * C + 3 * M + M * H + 2 * C + V * C + T * C + 4 * C * C + 4 * C);
	p = all = fixture_floats(*count, 0.125f, 0);
	mean = p, p += M, rstd = p, p += M, y = p, p += M * C, lse = p, p += M * H;
	ops->layernorm(ops, NULL, p, mean, rstd, x, NULL, gamma, gamma, M, C), p += M * C;
	ops->layernorm_backward(ops, p, p + M * C, p + M * C + C, dy, x, gamma, mean, rstd, M, C, 1, 1),
		p += M * C + 2 * C;
	ops->attention(ops, y, lse, qkv, B, T, C, H);
	ops->attention_backward(ops, p, dy, qkv, y, lse, B, T, C, H), p += 3 * M * C;
	ops->head_loss(ops, p, p + M, p + M + M * C, x, wte, tokens, M, C, V, 1);
	ops->embedding_backward(ops, p + M + M * C, p + M + M * C + V * C, dy, tokens, B, T, C, V, 1);
	p += M + M * C + V * C + T * C;
	ops->linear_backward_weight(ops, p, p + 4 * C * C, x, qkv, M, C, 3 * C, 0),
		p += 4 * C * C + 4 * C;
	ops->linear(ops, p, x, wte, gamma, M, C, C), p += M * C;
	ops->add(ops, p, x, dy, M * C), p += M * C;
	ops->embedding(ops, p, tokens, wte, x, B, T, C), p += M * C;
	assert_int_equal(p - all, *count - M * C);
	free(x), free(dy), free(qkv), free(gamma), free(wte), free(tokens);
	return all;
}

static void everything_else(void **state)
{
	struct ops *ops = fixture_ops(false, 3, 130, 192, 3, 257);
	size_t count;
	float *one;

	threads(1);
	one = run_all(ops, &count);
	for (int t = 2; t <= THREADS_MAX; t = threads_sample_next(t)) {
		float *many;

		threads(t);
		many = run_all(ops, &count);
		fixture_same_bits("results", many, one, count * sizeof(*one));
		free(many);
	}
	free(one);
	ops->destroy(ops);
}

/* As every ops does before its first product. */
static int settle(void **state)
{
	return cpu_isa_settle(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gemm_plans_of_gpt2),
		cmocka_unit_test(gemm_plans_of_the_head),
		cmocka_unit_test(gemm_plans_that_are_hard),
		cmocka_unit_test(everything_else),
	};

	return cmocka_run_group_tests_name("ops_threads", tests, settle, NULL);
}
