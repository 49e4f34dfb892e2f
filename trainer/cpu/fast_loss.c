/* SPDX-License-Identifier: Apache-2.0 */
/* The head and its loss, HEAD_ROWS rows of logits at a time, so that the logits never exist as a
 * whole. */
#include "config.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"
#include "trainer/cpu/gemm.h"

static void cross_entropy(struct ops *ops, float *losses, float *logits, const int32_t *targets,
	int M, int V, bool gradient)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;
	float scale = ops->params->loss_scale;

#pragma omp parallel for
	for (int m = 0; m < M; m++)
		losses[m] = kernels->cross_entropy(logits + (size_t)m * V, targets[m], V, gradient, scale);
}

static void head_loss(struct ops *ops, float *losses, float *dx, float *dwte, const float *x,
	const float *wte, const int32_t *targets, int M, int C, int V, int accumulate)
{
	float *logits = cpu_of(ops)->logits;

	for (int m = 0; m < M; m += HEAD_ROWS) {
		int rows = M - m < HEAD_ROWS ? M - m : HEAD_ROWS;
		const float *x_rows = x + (size_t)m * C;

		gemm_run(&(struct gemm) { .a = x_rows,
					 .b = wte,
					 .c = logits,
					 .m = rows,
					 .n = V,
					 .k = C,
					 .b_transposed = true },
			NULL, NULL);
		cross_entropy(ops, losses + m, logits, targets + m, rows, V, dx != NULL);
		if (!dx)
			continue;
		gemm_run(&(struct gemm) { .a = logits,
					 .b = wte,
					 .c = dx + (size_t)m * C,
					 .m = rows,
					 .n = C,
					 .k = V },
			NULL, NULL);
		gemm_run(&(struct gemm) { .a = logits,
					 .b = x_rows,
					 .c = dwte,
					 .m = V,
					 .n = C,
					 .k = rows,
					 .a_transposed = true,
					 .accumulate = accumulate || m > 0 },
			NULL, NULL);
	}
}

void fast_loss_install(struct ops *ops)
{
	plain_loss_install(ops);
	ops->head_loss = head_loss;
	ops->cross_entropy = cross_entropy;
}
