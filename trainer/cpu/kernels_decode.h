/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of text generation, which read every weight once for a few tokens; included once by each
 * kernels_ISA.c, after vec.h. */

#define TOKENS 4 /* tokens that share a load of the weights from the first-level cache */

/* The first n <= VL weights from `at` on. */
static inline vec load_weights(const void *w, bool half, size_t at, int n)
{
	uint16_t lanes[VL] = { 0 };

	if (!half)
		return v_load_upto((const float *)w + at, n);
	if (n >= VL)
		return v_load_bf16((const uint16_t *)w + at);
	memcpy(lanes, (const uint16_t *)w + at, (size_t)n * sizeof *lanes);
	return v_load_bf16(lanes);
}

/* One row of weights times `tokens` vectors. Each sum runs in LANES lanes, so that its bits depend
 * on neither `tokens` nor the instruction set. */
static inline __attribute__((always_inline)) void multiply_row(const struct row_products *p,
	size_t row, int token, const int tokens, const bool half)
{
	const size_t begin = row * (size_t)p->width;
	vec sum[TOKENS][LANE_VECS] = { 0 };

#define BODY(c, n, i) \
	do { \
		const vec w = load_weights(p->w, half, begin + (size_t)(c), n); \
		_Pragma("GCC unroll 4") for (int t = 0; t < tokens; t++) sum[t][i] = \
			v_fma(w, v_load_upto(p->x + (size_t)(token + t) * p->x_row + (c), n), sum[t][i]); \
	} while (0)
	ROW_LOOP(p->width, BODY);
#undef BODY
	for (int t = 0; t < tokens; t++)
		p->y[(size_t)(token + t) * p->y_row + row] = v_fold(sum[t]) + (p->bias ? p->bias[row] : 0);
}

static inline __attribute__((always_inline)) void multiply_rows(const struct row_products *p,
	const bool half)
{
	for (size_t row = (size_t)p->first; row < (size_t)p->last; row++) {
		int token = 0;

		for (; token + TOKENS <= p->tokens; token += TOKENS)
			multiply_row(p, row, token, TOKENS, half);
		for (; token < p->tokens; token++)
			multiply_row(p, row, token, 1, half);
	}
}

static void row_products(const struct row_products *p)
{
	if (p->half)
		multiply_rows(p, true);
	else
		multiply_rows(p, false);
}

static void weighted_rows(float *y, const float *weights, const float *x, int rows, int width)
{
	for (int c = 0; c < width; c += VL) {
		vec sum = v_set(0);

		for (int r = 0; r < rows; r++)
			sum = v_fma(v_set(weights[r]), v_load_upto(x + (size_t)r * width + c, width - c), sum);
		v_store_upto(y + c, sum, width - c);
	}
}
