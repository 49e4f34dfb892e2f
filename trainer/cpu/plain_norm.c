/* SPDX-License-Identifier: Apache-2.0 */
/* Embedding and layer normalisation in plain C: each sum runs in ascending order of its index. */
#include "config.h"

#include <math.h>

#include "trainer/cpu/cpu.h"

static void embedding(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	for (int m = 0; m < B * T; m++)
		for (int c = 0; c < C; c++)
			out[(size_t)m * C + c] = wte[(size_t)tokens[m] * C + c] + wpe[(size_t)(m % T) * C + c];
}

static void embedding_backward(struct ops *ops, float *dwte, float *dwpe, const float *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate)
{
	for (int m = 0; m < B * T; m++)
		for (int c = 0; c < C; c++)
			dwte[(size_t)tokens[m] * C + c] += dout[(size_t)m * C + c];
	for (int t = 0; t < T; t++)
		for (int c = 0; c < C; c++) {
			float sum = accumulate ? dwpe[(size_t)t * C + c] : 0;

			for (int b = 0; b < B; b++)
				sum += dout[((size_t)b * T + t) * C + c];
			dwpe[(size_t)t * C + c] = sum;
		}
}

static void layernorm_row(float *y, float *mean, float *rstd, const float *x, const float *gamma,
	const float *beta, int C)
{
	float sum = 0, squares = 0;

	for (int c = 0; c < C; c++)
		sum += x[c];
	*mean = sum / C;
	for (int c = 0; c < C; c++)
		squares += (x[c] - *mean) * (x[c] - *mean);
	*rstd = 1.0f / sqrtf(squares / C + LAYERNORM_EPSILON);
	for (int c = 0; c < C; c++)
		y[c] = (x[c] - *mean) * *rstd * gamma[c] + beta[c];
}

static void layernorm(struct ops *ops, float *sum, float *y, float *mean, float *rstd,
	const float *x, const float *add, const float *gamma, const float *beta, int M, int C)
{
#pragma omp parallel for
	for (int m = 0; m < M; m++) {
		size_t row = (size_t)m * C;

		for (int c = 0; add && c < C; c++)
			sum[row + c] = x[row + c] + add[row + c];
		layernorm_row(y + row, mean + m, rstd + m, (add ? sum : x) + row, gamma, beta, C);
	}
}

/* With n = (x - mean)·rstd and g = dy·gamma: dx = rstd·(g - mean(g) - n·mean(g·n)). */
static void layernorm_backward(struct ops *ops, float *dx, float *dgamma, float *dbeta,
	const float *dy, const float *x, const float *gamma, const float *mean, const float *rstd,
	int M, int C, int accumulate_dx, int accumulate)
{
	for (int c = 0; c < C && !accumulate; c++)
		dgamma[c] = dbeta[c] = 0;
	for (int m = 0; m < M; m++) {
		const float *dy_row = dy + (size_t)m * C, *x_row = x + (size_t)m * C;
		float *dx_row = dx + (size_t)m * C, mean_g = 0, mean_gn = 0;

		for (int c = 0; c < C; c++) {
			float n = (x_row[c] - mean[m]) * rstd[m];

			mean_g += dy_row[c] * gamma[c];
			mean_gn += dy_row[c] * gamma[c] * n;
			dgamma[c] += dy_row[c] * n;
			dbeta[c] += dy_row[c];
		}
		mean_g /= C;
		mean_gn /= C;
		for (int c = 0; c < C; c++) {
			float n = (x_row[c] - mean[m]) * rstd[m];
			float d = rstd[m] * (dy_row[c] * gamma[c] - mean_g - n * mean_gn);

			dx_row[c] = accumulate_dx ? dx_row[c] + d : d;
		}
	}
}

void plain_norm_install(struct ops *ops)
{
	ops->embedding = embedding;
	ops->embedding_backward = embedding_backward;
	ops->layernorm = layernorm;
	ops->layernorm_backward = layernorm_backward;
}
