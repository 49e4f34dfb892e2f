/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding and layer normalisation over threads. Each sum is computed by one thread, or in blocks
 * that only the shape decides, so the number of threads changes no bits. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

static void embedding(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int m = 0; m < B * T; m++)
		kernels->add(out + (size_t)m * C, wte + (size_t)tokens[m] * C, wpe + (size_t)(m % T) * C,
			(size_t)C);
}

/* A token can occur anywhere, so threads share out columns, not rows. */
static void embedding_backward(struct ops *ops, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int c = 0; c < C; c += COLUMNS)
		for (int m = 0; m < B * T; m++) {
			float *row = dwte + (size_t)tokens[m] * C + c;

			kernels->add(row, row, dout + (size_t)m * C + c, (size_t)at_most(C - c, COLUMNS));
		}
#pragma omp parallel for
	for (int t = 0; t < T; t++)
		kernels->column_sums(dwpe + (size_t)t * C, dout + (size_t)t * C, B, C, (size_t)T * C,
			accumulate);
}

static void layernorm(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
	const float *x, const float *add, const float *gamma, const float *beta, int M, int C)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int m = 0; m < M; m += LAYERNORM_ROWS) {
		size_t at = (size_t)m * C;

		kernels->layernorm(add ? sum + at : NULL, y + at, mean + m, rstd + m, x + at,
			add ? add + at : NULL, gamma, beta, at_most(M - m, LAYERNORM_ROWS), C);
	}
}

/* Each block of rows has its own sums of dgamma and dbeta; they are added in block order. */
static void layernorm_backward(struct ops *ops, float *dx, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
	int M, int C, int accumulate_dx, int accumulate)
{
	const struct cpu *cpu = cpu_of(ops);
	int blocks = (M + LAYERNORM_ROWS - 1) / LAYERNORM_ROWS;
	size_t pair = 2 * (size_t)C;

#pragma omp parallel for
	for (int i = 0; i < blocks; i++) {
		int m = i * LAYERNORM_ROWS;
		size_t at = (size_t)m * C;
		float *sums = cpu->norms + (size_t)i * pair;

		cpu->kernels->layernorm_backward(dx + at, sums, sums + C, dy + at, x + at, gamma, mean + m,
			rstd + m, at_most(M - m, LAYERNORM_ROWS), C, accumulate_dx);
	}
	cpu->kernels->column_sums(dgamma, cpu->norms, blocks, C, pair, accumulate);
	cpu->kernels->column_sums(dbeta, cpu->norms + C, blocks, C, pair, accumulate);
}

void fast_norm_install(struct ops *ops)
{
	ops->embedding = embedding;
	ops->embedding_backward = embedding_backward;
	ops->layernorm = layernorm;
	ops->layernorm_backward = layernorm_backward;
}
