/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels over rows of elements; included once by each kernels_ISA.c, after vec.h. */

#define GELU_SCALE 0.79788456080286535588f /* sqrt(2/pi) */
#define GELU_CUBE 0.044715f

/* 1 / (1 + e^-2u) with u = sqrt(2/pi)·(x + 0.044715·x³). GELU(x) is x times this, since it equals
 * (1 + tanh u) / 2. */
static inline vec gelu_gate(vec x)
{
	vec u = v_fma(x * x * v_set(GELU_SCALE * GELU_CUBE), x, x * v_set(GELU_SCALE));

	return v_set(1) / (v_set(1) + v_exp(u * v_set(-2)));
}

static inline vec gelu_derivative(vec x)
{
	vec gate = gelu_gate(x);
	vec slope =
		v_fma(x * x, v_set(6 * GELU_SCALE * GELU_CUBE), v_set(2 * GELU_SCALE)); /* 2·du/dx */

	return v_fma(x * slope, gate * (v_set(1) - gate), gate);
}

static void bias_rows(float *y, const float *bias, int rows, int cols, size_t ld)
{
	for (int r = 0; r < rows; r++, y += ld)
		for (int c = 0; c < cols; c += VL)
			v_store_upto(y + c, v_load_upto(y + c, cols - c) + v_load_upto(bias + c, cols - c),
				cols - c);
}

static void bias_relu_rows(float *y, const float *bias, int rows, int cols, size_t ld)
{
	for (int r = 0; r < rows; r++, y += ld)
		for (int c = 0; c < cols; c += VL) {
			vec a = v_load_upto(y + c, cols - c);

			if (bias)
				a += v_load_upto(bias + c, cols - c);
			v_store_upto(y + c, v_if_less(a, v_set(0), v_set(0), a), cols - c);
		}
}

static void bias_gelu_rows(float *y, float *pre, const float *bias, int rows, int cols, size_t ld)
{
	for (int r = 0; r < rows; r++, y += ld, pre += ld)
		for (int c = 0; c < cols; c += VL) {
			vec a = v_load_upto(pre + c, cols - c);

			if (bias)
				a += v_load_upto(bias + c, cols - c);
			v_store_upto(pre + c, a, cols - c);
			v_store_upto(y + c, a * gelu_gate(a), cols - c);
		}
}

static void relu_backward_rows(float *dx, const float *y, int rows, int cols, size_t ld)
{
	for (int r = 0; r < rows; r++, dx += ld, y += ld)
		for (int c = 0; c < cols; c += VL) {
			vec d = v_load_upto(dx + c, cols - c), a = v_load_upto(y + c, cols - c);

			v_store_upto(dx + c, v_if_less(v_set(0), a, d, v_set(0)), cols - c);
		}
}

static void gelu_backward_rows(float *dx, const float *pre, int rows, int cols, size_t ld)
{
	for (int r = 0; r < rows; r++, dx += ld, pre += ld)
		for (int c = 0; c < cols; c += VL) {
			vec d = v_load_upto(dx + c, cols - c), a = v_load_upto(pre + c, cols - c);

			v_store_upto(dx + c, d * gelu_derivative(a), cols - c);
		}
}

/* Sums four vectors of columns at once, so that the additions of a column need not wait for one
 * another. */
static void column_sums(float *out, const float *x, int rows, int cols, size_t ld, bool accumulate)
{
	int c = 0;

	for (; c + 4 * VL <= cols; c += 4 * VL) {
		vec sum[4];

#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			sum[i] = accumulate ? v_load(out + c + i * VL) : v_set(0);
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
			for (int i = 0; i < 4; i++)
				sum[i] += v_load(x + (size_t)r * ld + c + i * VL);
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			v_store(out + c + i * VL, sum[i]);
	}
	for (; c < cols; c += VL) {
		vec sum = accumulate ? v_load_upto(out + c, cols - c) : v_set(0);

		for (int r = 0; r < rows; r++)
			sum += v_load_upto(x + (size_t)r * ld + c, cols - c);
		v_store_upto(out + c, sum, cols - c);
	}
}

/* Calls BODY(c, n, i) for the vectors of a row: n <= VL elements from c on, which belong to lane
 * vector i. */
#define ROW_LOOP(width, BODY) \
	do { \
		int c_ = 0; \
		for (; c_ + LANES <= (width); c_ += LANES) \
			_Pragma("GCC unroll 4") for (int i_ = 0; i_ < LANE_VECS; i_++) \
				BODY(c_ + i_ * VL, VL, i_); \
		for (int i_ = 0; c_ < (width); c_ += VL, i_++) \
			BODY(c_, (width)-c_, i_); \
	} while (0)

static float row_sum(const float *x, int width)
{
	vec sum[LANE_VECS] = { 0 };

#define BODY(c, n, i) (sum[i] += v_load_upto(x + (c), n))
	ROW_LOOP(width, BODY);
#undef BODY
	return v_fold(sum);
}

/* The sum of (x - mean)². */
static float row_squares(const float *x, float mean, int width)
{
	vec sum[LANE_VECS] = { 0 };
	float means[VL];

#define BODY(c, n, i) \
	do { \
		vec d = v_load_upto(x + (c), n) - ((n) >= VL ? v_set(mean) : v_load_part(means, n)); \
		sum[i] = v_fma(d, d, sum[i]); \
	} while (0)
	v_store(means, v_set(mean));
	ROW_LOOP(width, BODY);
#undef BODY
	return v_fold(sum);
}

static void layernorm_rows(float *sum, float *y, float *mean, float *rstd, const float *x,
	const float *add, const float *gamma, const float *beta, int rows, int width)
{
	for (int r = 0; r < rows; r++, x += width, y += width) {
		const float *in = x;

		for (int c = 0; add && c < width; c += VL)
			v_store_upto(sum + c, v_load_upto(x + c, width - c) + v_load_upto(add + c, width - c),
				width - c);
		if (add)
			in = sum, sum += width, add += width;
		mean[r] = row_sum(in, width) / (float)width;
		rstd[r] = 1.0f / sqrtf(row_squares(in, mean[r], width) / (float)width + LAYERNORM_EPSILON);
		for (int c = 0; c < width; c += VL) {
			vec n = (v_load_upto(in + c, width - c) - v_set(mean[r])) * v_set(rstd[r]);

			v_store_upto(y + c,
				v_fma(n, v_load_upto(gamma + c, width - c), v_load_upto(beta + c, width - c)),
				width - c);
		}
	}
}

/* With n = (x - mean)·rstd and g = dy·gamma: dx = rstd·(g - mean(g) - n·mean(g·n)). */
static void layernorm_backward_row(float *dx, float *dgamma, float *dbeta, const float *dy,
	const float *x, const float *gamma, float mean, float rstd, int width, bool accumulate_dx)
{
	vec sum_g[LANE_VECS] = { 0 }, sum_gn[LANE_VECS] = { 0 };
	float mean_g, mean_gn;

#define BODY(c, n, i) \
	do { \
		vec d = v_load_upto(dy + (c), n), g = d * v_load_upto(gamma + (c), n); \
		vec normal = (v_load_upto(x + (c), n) - v_set(mean)) * v_set(rstd); \
		sum_g[i] += g; \
		sum_gn[i] = v_fma(g, normal, sum_gn[i]); \
		v_store_upto(dgamma + (c), v_fma(d, normal, v_load_upto(dgamma + (c), n)), n); \
		v_store_upto(dbeta + (c), d + v_load_upto(dbeta + (c), n), n); \
	} while (0)
	ROW_LOOP(width, BODY);
#undef BODY
	mean_g = v_fold(sum_g) / (float)width;
	mean_gn = v_fold(sum_gn) / (float)width;
	for (int c = 0; c < width; c += VL) {
		int n = width - c;
		vec g = v_load_upto(dy + c, n) * v_load_upto(gamma + c, n);
		vec normal = (v_load_upto(x + c, n) - v_set(mean)) * v_set(rstd);
		vec d = v_fma(normal, v_set(-mean_gn), g - v_set(mean_g)) * v_set(rstd);

		if (accumulate_dx)
			d += v_load_upto(dx + c, n);
		v_store_upto(dx + c, d, n);
	}
}

static void layernorm_backward_rows(float *dx, float *dgamma, float *dbeta, const float *dy,
	const float *x, const float *gamma, const float *mean, const float *rstd, int rows, int width,
	bool accumulate_dx)
{
	memset(dgamma, 0, (size_t)width * sizeof(float));
	memset(dbeta, 0, (size_t)width * sizeof(float));
	for (int r = 0; r < rows; r++)
		layernorm_backward_row(dx + (size_t)r * width, dgamma, dbeta, dy + (size_t)r * width,
			x + (size_t)r * width, gamma, mean[r], rstd[r], width, accumulate_dx);
}

/* The largest of n floats. With a NaN among them the result may be any of the others. */
static float row_max(const float *x, int n)
{
	vec max[4] = { v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY), v_set(-INFINITY) };
	float result;
	int c = 0;

	for (; c + 4 * VL <= n; c += 4 * VL)
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++)
			max[i] = v_max(v_load(x + c + i * VL), max[i]);
	result = v_fold_max(v_max(v_max(max[0], max[1]), v_max(max[2], max[3])));
	for (; c < n; c++)
		result = x[c] > result ? x[c] : result;
	return result;
}

/* out[n] = e^(x·scale - max); returns their sum. out may be x, or NULL. */
static float row_exp_sum(float *out, const float *x, float scale, float max, int n)
{
	vec sum[LANE_VECS] = { 0 };

#define BODY(c, count, i) \
	do { \
		vec e = v_exp(v_fma(v_load_upto(x + (c), count), v_set(scale), v_set(-max))); \
		float lanes_[VL]; \
		if ((count) < VL) { \
			v_store(lanes_, e); \
			e = v_load_part(lanes_, count); \
		} \
		if (out) \
			v_store_upto(out + (c), e, count); \
		sum[i] += e; \
	} while (0)
	ROW_LOOP(n, BODY);
#undef BODY
	return v_fold(sum);
}

static float cross_entropy_row(float *logits, int target, int vocabulary, bool gradient,
	float scale)
{
	float max, sum, loss, at_target;

	if (target < 0) {
		if (gradient)
			memset(logits, 0, (size_t)vocabulary * sizeof(float));
		return 0;
	}
	max = row_max(logits, vocabulary);
	at_target = logits[target];
	sum = row_exp_sum(gradient ? logits : NULL, logits, 1, max, vocabulary);
	loss = max + logf(sum) - at_target;
	if (!gradient)
		return loss;
	at_target = logits[target] / sum;
	for (int c = 0; c < vocabulary; c += VL)
		v_store_upto(logits + c, v_load_upto(logits + c, vocabulary - c) * v_set(scale / sum),
			vocabulary - c);
	logits[target] = (at_target - 1) * scale;
	return loss;
}

/* With `stream`, whole vectors of `to` bypass the caches, since memory that is only written need
 * not be read first. */
static inline void adamw_loop(const struct step_params *p, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad, size_t count,
	float weight_decay, const bool stream)
{
	vec first = v_set(1.0f - p->beta1), second = v_set(1.0f - p->beta2),
		rate = v_set(-p->learning_rate);

	for (size_t i = 0; i < count; i += VL) {
		int n = count - i < VL ? (int)(count - i) : VL;
		vec g = v_load_upto(grad + i, n) * v_set(p->clip), w = v_load_upto(from->weights + i, n);
		vec a = v_load_upto(from->m + i, n), b = v_load_upto(from->v + i, n), direction;

		a = v_fma(first, g - a, a);
		b = v_fma(second, g * g - b, b);
		direction = a * v_set(p->bias1) / (v_sqrt(b * v_set(p->bias2)) + v_set(p->epsilon));
		w = v_fma(rate, v_fma(v_set(weight_decay), w, direction), w);
		v_store_past(to->m + i, a, n, stream);
		v_store_past(to->v + i, b, n, stream);
		v_store_past(to->weights + i, w, n, stream);
		if (compute != to->weights)
			v_store_upto(compute + i, w, n);
	}
	if (stream)
		v_stream_end();
}

static void adamw_run(const struct step_params *p, const struct adamw_state *to,
	const struct adamw_state *from, float *compute, const float *grad, size_t count,
	float weight_decay)
{
	uintptr_t places = (uintptr_t)to->weights | (uintptr_t)to->m | (uintptr_t)to->v;

	if (to->weights != from->weights && places % sizeof(vec) == 0)
		adamw_loop(p, to, from, compute, grad, count, weight_decay, true);
	else
		adamw_loop(p, to, from, compute, grad, count, weight_decay, false);
}

/* Sums by the tree of plain_update.c. */
static double square_sum_block(const float *x, size_t count)
{
	double lanes[NORM_LANES] = { 0 };
	size_t i = 0;

	for (; i + NORM_LANES <= count; i += NORM_LANES)
#pragma GCC ivdep
		for (int j = 0; j < NORM_LANES; j++)
			lanes[j] += (double)x[i + j] * (double)x[i + j];
	for (int j = 0; i < count; i++, j++)
		lanes[j] += (double)x[i] * (double)x[i];
	for (int width = NORM_LANES / 2; width >= 1; width /= 2)
		for (int j = 0; j < width; j++)
			lanes[j] += lanes[j + width];
	return lanes[0];
}

static void add_run(float *out, const float *a, const float *b, size_t count)
{
	for (size_t i = 0; i < count; i += VL) {
		int n = count - i < VL ? (int)(count - i) : VL;

		v_store_upto(out + i, v_load_upto(a + i, n) + v_load_upto(b + i, n), n);
	}
}
