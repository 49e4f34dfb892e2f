/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of batch normalisation over threads. A sum stays inside one column, and a thread has
 * blocks of columns or of rows, so the bits are those of plain_batchnorm.c. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"

static int at_most(int a, int b)
{
	return a < b ? a : b;
}

static void moments(struct ops *ops, double *moments, const float *x, const int32_t *targets, int M,
	int C)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int c = 0; c < C; c += COLUMNS)
		kernels->batchnorm_moments(moments + c, moments + C + c, x + c, targets, M,
			at_most(C - c, COLUMNS), (size_t)C);
}

static void relu(struct ops *ops, float *y, const float *x, const float *mean, const float *rstd,
	const float *gamma, const float *beta, int M, int C)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int m = 0; m < M; m++)
		kernels->batchnorm_relu(y + (size_t)m * C, x + (size_t)m * C, mean, rstd, gamma, beta, C);
}

static void sums(struct ops *ops, double *sums, float *dgamma, float *dbeta, const float *dy,
	const float *x, const float *mean, const float *rstd, const int32_t *targets, int M, int C,
	int accumulate)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int c = 0; c < C; c += COLUMNS) {
		int columns = at_most(C - c, COLUMNS);

		kernels->batchnorm_sums(sums + c, sums + C + c, dy + c, x + c, mean + c, rstd + c, targets,
			M, columns, (size_t)C);
		for (int i = c; i < c + columns; i++) {
			dgamma[i] = (accumulate ? dgamma[i] : 0) + (float)sums[i];
			dbeta[i] = (accumulate ? dbeta[i] : 0) + (float)sums[C + i];
		}
	}
}

static void backward(struct ops *ops, float *dx, const float *dy, const float *x, const float *mean,
	const float *rstd, const float *gamma, const float *means, const int32_t *targets, int M, int C)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for
	for (int m = 0; m < M; m++)
		kernels->batchnorm_backward(dx + (size_t)m * C, dy + (size_t)m * C, x + (size_t)m * C, mean,
			rstd, gamma, means, means + C, targets[m] >= 0, C);
}

void fast_batchnorm_install(struct ops *ops)
{
	ops->batchnorm_moments = moments;
	ops->batchnorm_relu = relu;
	ops->batchnorm_sums = sums;
	ops->batchnorm_backward = backward;
}
