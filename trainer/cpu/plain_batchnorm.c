/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of batch normalisation in plain C: each sum is over one column, in ascending order of
 * rows, in fp64. */
#include "config.h"

#include <string.h>

#include "trainer/cpu/cpu.h"

static void moments(struct ops *ops, double *moments, const float *x, const int32_t *targets, int M,
	int C)
{
	int count = 0;

	for (int m = 0; m < M; m++)
		count += targets[m] >= 0;
	for (int c = 0; c < C; c++) {
		double sum = 0, mean, squares = 0;

		for (int m = 0; m < M; m++)
			if (targets[m] >= 0)
				sum += (double)x[(size_t)m * C + c];
		mean = count ? sum / count : 0;
		for (int m = 0; m < M; m++)
			if (targets[m] >= 0)
				squares +=
					((double)x[(size_t)m * C + c] - mean) * ((double)x[(size_t)m * C + c] - mean);
		moments[c] = mean;
		moments[C + c] = squares;
	}
}

static void relu(struct ops *ops, float *y, const float *x, const float *mean, const float *rstd,
	const float *gamma, const float *beta, int M, int C)
{
	for (int m = 0; m < M; m++)
		for (int c = 0; c < C; c++) {
			float a = (x[(size_t)m * C + c] - mean[c]) * rstd[c] * gamma[c] + beta[c];

			y[(size_t)m * C + c] = a < 0 ? 0 : a;
		}
}

static void sums(struct ops *ops, double *sums, float *dgamma, float *dbeta, const float *dy,
	const float *x, const float *mean, const float *rstd, const int32_t *targets, int M, int C,
	int accumulate)
{
	memset(sums, 0, 2 * (size_t)C * sizeof(*sums));
	for (int m = 0; m < M; m++)
		for (int c = 0; targets[m] >= 0 && c < C; c++) {
			size_t at = (size_t)m * C + c;
			float n = (x[at] - mean[c]) * rstd[c];

			sums[c] += (double)dy[at] * (double)n;
			sums[C + c] += (double)dy[at];
		}
	for (int c = 0; c < C; c++) {
		dgamma[c] = (accumulate ? dgamma[c] : 0) + (float)sums[c];
		dbeta[c] = (accumulate ? dbeta[c] : 0) + (float)sums[C + c];
	}
}

static void backward(struct ops *ops, float *dx, const float *dy, const float *x, const float *mean,
	const float *rstd, const float *gamma, const float *means, const int32_t *targets, int M, int C)
{
	for (int m = 0; m < M; m++)
		for (int c = 0; c < C; c++) {
			size_t at = (size_t)m * C + c;
			float n = (x[at] - mean[c]) * rstd[c];

			dx[at] =
				targets[m] < 0 ? 0 : (dy[at] - means[C + c] - n * means[c]) * (gamma[c] * rstd[c]);
		}
}

void plain_batchnorm_install(struct ops *ops)
{
	ops->batchnorm_moments = moments;
	ops->batchnorm_relu = relu;
	ops->batchnorm_sums = sums;
	ops->batchnorm_backward = backward;
}
