/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the fast ops, one thread each: one table for each instruction set. All tables
 * give the same bits (vec.h says why), so bits depend on the instruction set only where oneDNN
 * computes the products. */
#ifndef MUSTER_CPU_KERNELS_H
#define MUSTER_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/ops/ops.h"

/* c[m·c_row + n] = or += (accumulate) the sum over k, ascending from 0, of a[m·a_row + k·a_col] ·
 * b[k·b_row + n]. */
struct tile_gemm {
	int m, n, k;
	const float *a;
	size_t a_row, a_col;
	const float *b;
	size_t b_row;
	float *c;
	size_t c_row;
	bool accumulate;
};

/* The same with operands of any size, which may be transposed: one of a_row and a_col is 1, and one
 * of b_row and b_col. */
struct block_gemm {
	int m, n, k;
	const float *a;
	size_t a_row, a_col;
	const float *b;
	size_t b_row, b_col;
	float *c;
	size_t c_row;
	bool accumulate;
};

/* One head of one sample: q, k, v and their gradients have rows `row` elements apart; y and dy
 * `y_row`. */
struct attention_head {
	int positions, size;
	const float *q, *k, *v;
	size_t row;
	float *y;
	size_t y_row;
	float *lse;
	const float *dy;
	float *dq, *dk, *dv;
};

/* y[t·y_row + n] = bias[n] (0 for NULL) + the sum over k of x[t·x_row + k]·w[n·width + k], for t
 * below `tokens` and n from `first` to below `last`. The weights are bfloat16 where `half` is
 * set. */
struct row_products {
	int tokens, first, last, width;
	const float *x;
	size_t x_row;
	const void *w;
	bool half;
	const float *bias;
	float *y;
	size_t y_row;
};

struct kernels {
	/* These work on a tile [rows, cols] with `ld` elements from row to row. */
	void (*bias)(float *y, const float *bias, int rows, int cols, size_t ld);
	void (*bias_relu)(float *y, const float *bias, int rows, int cols, size_t ld);
	void (*bias_gelu)(float *y, float *pre, const float *bias, int rows, int cols, size_t ld);
	void (*relu_backward)(float *dx, const float *y, int rows, int cols, size_t ld);
	void (*gelu_backward)(float *dx, const float *pre, int rows, int cols, size_t ld);
	/* out[cols] = or += the sum of the rows, in ascending order. */
	void (*column_sums)(float *out, const float *x, int rows, int cols, size_t ld, bool accumulate);

	void (*layernorm)(float *sum, float *y, float *mean, float *rstd, const float *x,
		const float *add, const float *gamma, const float *beta, int rows, int width);
	/* Overwrites dgamma and dbeta [width] with these rows' sums. */
	void (*layernorm_backward)(float *dx, float *dgamma, float *dbeta, const float *dy,
		const float *x, const float *gamma, const float *mean, const float *rstd, int rows,
		int width, bool accumulate_dx);

	/* The parts of batch normalisation (kernels_batchnorm.h): sums of up to COLUMNS columns; the
	 * other parts work on one row. */
	void (*batchnorm_moments)(double *mean, double *squares, const float *x, const int32_t *targets,
		int rows, int cols, size_t ld);
	void (*batchnorm_relu)(float *y, const float *x, const float *mean, const float *rstd,
		const float *gamma, const float *beta, int width);
	void (*batchnorm_sums)(double *sum_dyn, double *sum_dy, const float *dy, const float *x,
		const float *mean, const float *rstd, const int32_t *targets, int rows, int cols,
		size_t ld);
	void (*batchnorm_backward)(float *dx, const float *dy, const float *x, const float *mean,
		const float *rstd, const float *gamma, const float *mean_dyn, const float *mean_dy,
		bool counts, int width);

	/* Returns the loss of one row of logits; with `gradient` they become (softmax - one at
	 * target)·scale. */
	float (*cross_entropy)(float *logits, int target, int vocabulary, bool gradient, float scale);

	void (*gemm)(const struct tile_gemm *gemm);
	void (*gemm_block)(const struct block_gemm *gemm);
	void (*attention)(const struct attention_head *head);
	void (*attention_backward)(const struct attention_head *head);

	void (*adamw)(const struct step_params *params, const struct adamw_state *to,
		const struct adamw_state *from, float *compute, const float *grad, size_t count,
		float weight_decay);
	double (*square_sum)(const float *x, size_t count);
	void (*row_products)(const struct row_products *products);
	/* y[width] = the sum of the rows of x [rows][width], each times its weight, ascending. */
	void (*weighted_rows)(float *y, const float *weights, const float *x, int rows, int width);

	void (*add)(float *out, const float *a, const float *b, size_t count);
};

extern const struct kernels kernels_default, kernels_avx2, kernels_avx512;

/* The table of the instruction set in effect. */
const struct kernels *kernels_now(void);

#endif
