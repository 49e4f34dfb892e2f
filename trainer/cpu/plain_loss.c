/* SPDX-License-Identifier: Apache-2.0 */
/* The head and the cross-entropy in plain C, one row of logits at a time, and the sum of the
 * losses. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "trainer/cpu/cpu.h"

/* Returns the loss of one row; with `gradient` replaces the logits by (softmax - one at
 * target)·scale. */
static float cross_entropy_row(float *logits, int target, int V, bool gradient, float scale)
{
	float max = -INFINITY, sum = 0, loss;

	if (target < 0) {
		if (gradient)
			memset(logits, 0, (size_t)V * sizeof(float));
		return 0;
	}
	for (int v = 0; v < V; v++)
		max = fmaxf(max, logits[v]);
	for (int v = 0; v < V; v++)
		sum += expf(logits[v] - max);
	loss = max + logf(sum) - logits[target];
	for (int v = 0; gradient && v < V; v++)
		logits[v] = (expf(logits[v] - max) / sum - (v == target)) * scale;
	return loss;
}

static void cross_entropy(struct ops *ops, float *losses, float *logits, const int32_t *targets,
	int M, int V, bool gradient)
{
	for (int m = 0; m < M; m++)
		losses[m] = cross_entropy_row(logits + (size_t)m * V, targets[m], V, gradient,
			ops->params->loss_scale);
}

/* One row's part of the gradients: dx[C] = dlogits[V] · wte[V,C], dwte[V,C] += dlogits ⊗ x. */
static void head_backward_row(float *dx, float *dwte, const float *dlogits, const float *x,
	const float *wte, int C, int V)
{
	for (int c = 0; c < C; c++)
		dx[c] = 0;
	for (int v = 0; v < V; v++)
		for (int c = 0; c < C; c++) {
			dx[c] += dlogits[v] * wte[(size_t)v * C + c];
			dwte[(size_t)v * C + c] += dlogits[v] * x[c];
		}
}

static void head_loss(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	float *logits = cpu_of(ops)->logits;

	if (dx && !accumulate)
		memset(dwte, 0, (size_t)V * C * sizeof(float));
	for (int m = 0; m < M; m++) {
		const float *row = x + (size_t)m * C;

		for (int v = 0; v < V; v++) {
			logits[v] = 0;
			for (int c = 0; c < C; c++)
				logits[v] += row[c] * wte[(size_t)v * C + c];
		}
		losses[m] = cross_entropy_row(logits, targets[m], V, dx != NULL, ops->params->loss_scale);
		if (dx)
			head_backward_row(dx + (size_t)m * C, dwte, logits, row, wte, C, V);
	}
}

static double block_sum(const float *losses, size_t count)
{
	double sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += (double)losses[i];
	return sum;
}

static void sum_losses(struct ops *ops, double *sum, const float *losses, size_t count,
	int accumulate)
{
	double all = 0;

	for (size_t at = 0; at < count; at += LOSS_BLOCK)
		all += block_sum(losses + at, count - at < LOSS_BLOCK ? count - at : LOSS_BLOCK);
	*sum = accumulate ? *sum + all : all;
}

void plain_loss_install(struct ops *ops)
{
	ops->sum_losses = sum_losses;
	ops->head_loss = head_loss;
	ops->cross_entropy = cross_entropy;
}
