/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of batch normalisation; included once by each kernels_ISA.c, after vec.h. No sum crosses
 * columns, so the compiler may vectorise over columns at any width, and the bits are those of
 * plain_batchnorm.c. */

/* For up to COLUMNS columns: the mean over the rows that count, and the sum of the squared
 * distances from it. */
static void batchnorm_moments(double *mean, double *squares, const float *x, const int32_t *targets,
	int rows, int cols, size_t ld)
{
	double sum[COLUMNS] = { 0 }, square[COLUMNS] = { 0 };
	int count = 0;

	for (int r = 0; r < rows; r++) {
		if (targets[r] < 0)
			continue;
		count++;
#pragma GCC ivdep
		for (int c = 0; c < cols; c++)
			sum[c] += (double)x[(size_t)r * ld + c];
	}
	for (int c = 0; c < cols; c++)
		sum[c] = count ? sum[c] / count : 0;
	for (int r = 0; r < rows; r++) {
		if (targets[r] < 0)
			continue;
#pragma GCC ivdep
		for (int c = 0; c < cols; c++) {
			double d = (double)x[(size_t)r * ld + c] - sum[c];

			square[c] += d * d;
		}
	}
	memcpy(mean, sum, (size_t)cols * sizeof(*mean));
	memcpy(squares, square, (size_t)cols * sizeof(*squares));
}

static void batchnorm_relu_row(float *y, const float *x, const float *mean, const float *rstd,
	const float *gamma, const float *beta, int width)
{
	for (int c = 0; c < width; c += VL) {
		int n = width - c;
		vec a = (v_load_upto(x + c, n) - v_load_upto(mean + c, n)) * v_load_upto(rstd + c, n);

		a = a * v_load_upto(gamma + c, n) + v_load_upto(beta + c, n);
		v_store_upto(y + c, v_if_less(a, v_set(0), v_set(0), a), n);
	}
}

/* For up to COLUMNS columns, over the rows that count: the sums of dy·n and of dy, with n = (x -
 * mean)·rstd. */
static void batchnorm_sums(double *sum_dyn, double *sum_dy, const float *dy, const float *x,
	const float *mean, const float *rstd, const int32_t *targets, int rows, int cols, size_t ld)
{
	double sum[2][COLUMNS] = { 0 };

	for (int r = 0; r < rows; r++) {
		if (targets[r] < 0)
			continue;
#pragma GCC ivdep
		for (int c = 0; c < cols; c++) {
			float n = (x[(size_t)r * ld + c] - mean[c]) * rstd[c];

			sum[0][c] += (double)dy[(size_t)r * ld + c] * (double)n;
			sum[1][c] += (double)dy[(size_t)r * ld + c];
		}
	}
	memcpy(sum_dyn, sum[0], (size_t)cols * sizeof(*sum_dyn));
	memcpy(sum_dy, sum[1], (size_t)cols * sizeof(*sum_dy));
}

static void batchnorm_backward_row(float *dx, const float *dy, const float *x, const float *mean,
	const float *rstd, const float *gamma, const float *mean_dyn, const float *mean_dy, bool counts,
	int width)
{
	if (!counts) {
		memset(dx, 0, (size_t)width * sizeof(*dx));
		return;
	}
	for (int c = 0; c < width; c += VL) {
		int n = width - c;
		vec scale = v_load_upto(rstd + c, n);
		vec normal = (v_load_upto(x + c, n) - v_load_upto(mean + c, n)) * scale;
		vec d = v_load_upto(dy + c, n) - v_load_upto(mean_dy + c, n)
			- normal * v_load_upto(mean_dyn + c, n);

		v_store_upto(dx + c, d * (v_load_upto(gamma + c, n) * scale), n);
	}
}
