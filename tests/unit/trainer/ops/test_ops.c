/* SPDX-License-Identifier: Apache-2.0 */
/* ops: both CPU tables against the formulas in fp64, and gradients against central differences of
 * those. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/ops/ops_fixture.h"

#define TOLERANCE 2e-5
#define STEP 1e-4 /* of central differences in fp64 */

/* Runs a check on the plain table and on the fast one. */
static void on_both(void (*check)(struct ops *ops))
{
	for (int plain = 1; plain >= 0; plain--) {
		struct ops *ops = fixture_ops(plain, 3, 70, 30, 2, 41);

		check(ops);
		ops->destroy(ops);
	}
}

static double *doubles(const float *x, size_t count)
{
	double *d = malloc(count * sizeof(*d));

	for (size_t i = 0; i < count; i++)
		d[i] = (double)x[i];
	return d;
}

/* The derivative of f(arg), which reads x, by x[i], for every i. */
static double *derivative(double (*f)(const void *arg), const void *arg, double *x, size_t count)
{
	double *d = malloc(count * sizeof(*d));

	for (size_t i = 0; i < count; i++) {
		double saved = x[i], up;

		x[i] = saved + STEP;
		up = f(arg);
		x[i] = saved - STEP;
		d[i] = (up - f(arg)) / (2 * STEP);
		x[i] = saved;
	}
	return d;
}

/* --- memory --- */

/* Small and large, and where freed memory is used again. */
static void check_memory(struct ops *ops)
{
	static const size_t sizes[] = { 0, 1, 63, 64, 65, 5000, 1 << 20, (3 << 20) + 4 };
	const size_t count = sizeof sizes / sizeof sizes[0];
	struct device *device = ops->device;

	for (size_t i = 0; i < 3 * count; i++) {
		size_t size = sizes[i % count], sum = 0;
		unsigned char *p = device->alloc(device, size);

		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 64, 0);
		for (size_t at = 0; at < size; at++)
			sum += p[at];
		assert_int_equal(sum, 0);
		memset(p, 255, size);
		device->release(device, p);
	}
	device->release(device, NULL);
}

static void memory_is_zeroed_and_aligned(void **state)
{
	on_both(check_memory);
}

/* --- linear --- */

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
	return (gelu(x + STEP) - gelu(x - STEP)) / (2 * STEP);
}

static void check_linear(struct ops *ops)
{
	enum { M = 13, K = 30, N = 37 };
	float *x = fixture_floats(M * K, 1, 1), *w = fixture_floats(K * N, 1, 2),
		  *bias = fixture_floats(N, 1, 3);
	float *y = fixture_floats(M * N, NAN, 0), *pre = fixture_floats(M * N, NAN, 0);
	double exact[M * N], activated[M * N], rectified[M * N];

	for (int i = 0; i < M * N; i++) {
		exact[i] = (double)bias[i % N];
		for (int k = 0; k < K; k++)
			exact[i] += (double)x[i / N * K + k] * (double)w[k * N + i % N];
		activated[i] = gelu(exact[i]);
		rectified[i] = fmax(0, exact[i]);
	}
	ops->linear(ops, y, x, w, bias, M, K, N);
	fixture_near_double("linear", y, exact, M * N, TOLERANCE);
	ops->linear_relu(ops, y, x, w, bias, M, K, N);
	fixture_near_double("linear_relu", y, rectified, M * N, TOLERANCE);
	ops->linear_gelu(ops, y, pre, x, w, bias, M, K, N);
	fixture_near_double("linear_gelu", y, activated, M * N, TOLERANCE);
	fixture_near_double("pre", pre, exact, M * N, TOLERANCE);
	ops->linear(ops, y, x, w, NULL, M, K, N);
	for (int i = 0; i < M * N; i++)
		exact[i] -= (double)bias[i % N];
	fixture_near_double("linear without bias", y, exact, M * N, TOLERANCE);
	free(x), free(w), free(bias), free(y), free(pre);
}

static void linear(void **state)
{
	on_both(check_linear);
}

static void check_linear_backward(struct ops *ops)
{
	enum { M = 13, K = 30, N = 37 };
	float *x = fixture_floats(M * K, 2, 1), *w = fixture_floats(K * N, 1, 2),
		  *dy = fixture_floats(M * N, 1, 3);
	float *dx = fixture_floats(M * K, NAN, 0), *dw = fixture_floats(K * N, NAN, 0),
		  *db = fixture_floats(N, NAN, 0);
	double in[M * K], in_gelu[M * K], in_relu[M * K], weight[K * N] = { 0 }, bias[N] = { 0 };

	for (int i = 0; i < M * K; i++) {
		in[i] = 0;
		for (int n = 0; n < N; n++)
			in[i] += (double)dy[i / K * N + n] * (double)w[i % K * N + n];
		in_gelu[i] = in[i] * gelu_slope((double)x[i]);
		in_relu[i] = x[i] > 0 ? in[i] : 0;
	}
	for (int i = 0; i < K * N; i++)
		for (int m = 0; m < M; m++)
			weight[i] += (double)x[m * K + i / N] * (double)dy[m * N + i % N];
	for (int i = 0; i < M * N; i++)
		bias[i % N] += (double)dy[i];
	ops->linear_backward_input(ops, dx, dy, w, M, K, N);
	fixture_near_double("dx", dx, in, M * K, TOLERANCE);
	ops->linear_backward_input_gelu(ops, dx, dy, w, x, M, K, N);
	fixture_near_double("dx through gelu", dx, in_gelu, M * K, TOLERANCE);
	ops->linear_backward_input_relu(ops, dx, dy, w, x, M, K, N);
	fixture_near_double("dx through relu", dx, in_relu, M * K, TOLERANCE);
	for (int times = 1; times <= 2; times++) {
		ops->linear_backward_weight(ops, dw, db, x, dy, M, K, N, times > 1);
		fixture_near_double("dw", dw, weight, K * N, TOLERANCE);
		fixture_near_double("dbias", db, bias, N, TOLERANCE);
		for (int i = 0; i < K * N; i++)
			weight[i] *= 2;
		for (int n = 0; n < N; n++)
			bias[n] *= 2;
	}
	free(x), free(w), free(dy), free(dx), free(dw), free(db);
}

static void linear_backward(void **state)
{
	on_both(check_linear_backward);
}

/* Large arguments must neither overflow nor lose their sign. */
static void check_gelu_extremes(struct ops *ops)
{
	const float x[] = { -1e30f, -200, -30, -10, -1e-30f, 0, 1e-30f, 10, 30, 200, 1e30f };
	enum { N = sizeof(x) / sizeof(*x) };
	float one = 1, y[N], pre[N], dx[N], w[N];
	double exact[N], slope[N];

	for (int i = 0; i < N; i++) {
		exact[i] = x[i] > 15 ? (double)x[i] : x[i] < -15 ? 0 : gelu((double)x[i]);
		slope[i] = x[i] > 9 ? 1 : x[i] < -9 ? 0 : gelu_slope((double)x[i]);
	}
	ops->linear_gelu(ops, y, pre, &one, x, NULL, 1, 1, N);
	for (int i = 0; i < N; i++)
		fixture_near_double("gelu", y + i, exact + i, 1,
			exact[i] == 0 || fabs(exact[i]) < 1e-20 ? 1 : 1e-5);
	for (int i = 0; i < N; i++)
		w[i] = 1;
	ops->linear_backward_input_gelu(ops, dx, &one, w, x, 1, N, 1);
	for (int i = 1; i < N - 1; i++) /* x² overflows at the ends */
		fixture_near_double("slope of gelu", dx + i, slope + i, 1,
			slope[i] == 0 ? 1e30 * 1e-6 : 1e-5);
}

static void gelu_extremes(void **state)
{
	on_both(check_gelu_extremes);
}

/* --- embedding --- */

static void check_embedding(struct ops *ops)
{
	enum { B = 3, T = 7, C = 29, V = 11, M = B * T };
	int32_t *tokens = fixture_tokens(M, V, 1);
	float *wte = fixture_floats(V * C, 1, 2), *wpe = fixture_floats(T * C, 1, 3),
		  *dout = fixture_floats(M * C, 1, 4);
	float *out = fixture_floats(M * C, NAN, 0), *dwte = fixture_floats(V * C, 1, 0),
		  *dwpe = fixture_floats(T * C, NAN, 0);
	double exact[M * C], token[V * C], position[T * C] = { 0 };

	for (int i = 0; i < V * C; i++)
		token[i] = 1;
	for (int i = 0; i < M * C; i++) {
		exact[i] = (double)wte[tokens[i / C] * C + i % C] + (double)wpe[i / C % T * C + i % C];
		token[tokens[i / C] * C + i % C] += (double)dout[i];
		position[i % (T * C)] += (double)dout[i];
	}
	ops->embedding(ops, out, tokens, wte, wpe, B, T, C);
	fixture_near_double("embedding", out, exact, M * C, 1e-7);
	ops->embedding_backward(ops, dwte, dwpe, dout, tokens, B, T, C, V, 0);
	fixture_near_double("dwte", dwte, token, V * C, 1e-6);
	fixture_near_double("dwpe", dwpe, position, T * C, 1e-6);
	ops->embedding_backward(ops, dwte, dwpe, dout, tokens, B, T, C, V, 1);
	for (int i = 0; i < T * C; i++)
		position[i] *= 2;
	fixture_near_double("dwpe added to", dwpe, position, T * C, 1e-6);
	free(tokens), free(wte), free(wpe), free(dout), free(out), free(dwte), free(dwpe);
}

static void embedding(void **state)
{
	on_both(check_embedding);
}

/* --- layernorm --- */

struct norm_case {
	int M, C;
	double *x, *gamma, *beta, *y;
	const double *dy;
};

/* The sum of y·dy. */
static double norm_exact(const void *arg)
{
	const struct norm_case *n = arg;
	double total = 0;

	for (int m = 0; m < n->M; m++) {
		const double *x = n->x + m * n->C;
		double mean = 0, squares = 0;

		for (int c = 0; c < n->C; c++)
			mean += x[c] / n->C;
		for (int c = 0; c < n->C; c++)
			squares += (x[c] - mean) * (x[c] - mean) / n->C;
		for (int c = 0; c < n->C; c++) {
			double y = (x[c] - mean) / sqrt(squares + 1e-5) * n->gamma[c] + n->beta[c];

			n->y[m * n->C + c] = y;
			total += y * n->dy[m * n->C + c];
		}
	}
	return total;
}

static void check_layernorm(struct ops *ops)
{
	enum { M = 35, C = 29 };
	float *a = fixture_floats(M * C, 1, 1), *b = fixture_floats(M * C, 3, 2),
		  *dy = fixture_floats(M * C, 1, 3);
	float *gamma = fixture_floats(C, 1, 4), *beta = fixture_floats(C, 1, 5),
		  *sum = fixture_floats(M * C, NAN, 0);
	float *y = fixture_floats(M * C, NAN, 0), *dx = fixture_floats(M * C, 2, 0), mean[M], rstd[M];
	float *dgamma = fixture_floats(C, NAN, 0), *dbeta = fixture_floats(C, NAN, 0);
	struct norm_case n = { M, C, NULL, doubles(gamma, C), doubles(beta, C),
		malloc(M * C * sizeof(double)), NULL };
	double *in, *by_gamma, *by_beta;

	ops->layernorm(ops, sum, y, mean, rstd, a, b, gamma, beta, M, C);
	n.x = doubles(sum, M * C);
	n.dy = doubles(dy, M * C);
	norm_exact(&n);
	for (int i = 0; i < M * C; i++)
		assert_true(sum[i] == a[i] + b[i]);
	fixture_near_double("layernorm", y, n.y, M * C, TOLERANCE);
	ops->layernorm(ops, NULL, y, mean, rstd, sum, NULL, gamma, beta, M, C);
	fixture_near_double("layernorm without add", y, n.y, M * C, TOLERANCE);
	memcpy(y, a, M * C * sizeof(*y));
	ops->layernorm(ops, y, b, mean, rstd, y, b, gamma, beta, M,
		C); /* sum may be x, and y the addend */
	fixture_near_double("layernorm in place", b, n.y, M * C, TOLERANCE);

	in = derivative(norm_exact, &n, n.x, M * C);
	by_gamma = derivative(norm_exact, &n, n.gamma, C);
	by_beta = derivative(norm_exact, &n, n.beta, C);
	ops->layernorm_backward(ops, dx, dgamma, dbeta, dy, sum, gamma, mean, rstd, M, C, 0, 0);
	fixture_near_double("dx", dx, in, M * C, TOLERANCE);
	fixture_near_double("dgamma", dgamma, by_gamma, C, TOLERANCE);
	fixture_near_double("dbeta", dbeta, by_beta, C, TOLERANCE);
	ops->layernorm_backward(ops, dx, dgamma, dbeta, dy, sum, gamma, mean, rstd, M, C, 1, 1);
	for (int i = 0; i < M * C; i++)
		in[i] *= 2;
	for (int c = 0; c < C; c++)
		by_gamma[c] *= 2, by_beta[c] *= 2;
	fixture_near_double("dx added to", dx, in, M * C, TOLERANCE);
	fixture_near_double("dgamma added to", dgamma, by_gamma, C, TOLERANCE);
	fixture_near_double("dbeta added to", dbeta, by_beta, C, TOLERANCE);
	free(a), free(b), free(dy), free(gamma), free(beta), free(sum), free(y), free(dx), free(dgamma),
		free(dbeta);
	free(n.x), free(n.gamma), free(n.beta), free(n.y), free((void *)n.dy), free(in), free(by_gamma),
		free(by_beta);
}

static void layernorm(void **state)
{
	on_both(check_layernorm);
}

/* --- attention --- */

struct attention_case {
	int B, T, C, H;
	double *qkv, *y, *lse;
	const double *dy;
};

static double attention_exact(const void *arg)
{
	const struct attention_case *a = arg;
	int D = a->C / a->H;
	double total = 0;

	for (int i = 0; i < a->B * a->T * a->H; i++) {
		int b = i / (a->T * a->H), t = i / a->H % a->T, h = i % a->H;
		const double *q = a->qkv + (b * a->T + t) * 3 * a->C + h * D,
					 *k = a->qkv + b * a->T * 3 * a->C + a->C + h * D;
		double *y = a->y + (b * a->T + t) * a->C + h * D, sum = 0;

		memset(y, 0, (size_t)D * sizeof(*y));
		for (int s = 0; s <= t; s++, k += 3 * a->C) {
			double score = 0;

			for (int d = 0; d < D; d++)
				score += q[d] * k[d];
			score = exp(score / sqrt(D));
			sum += score;
			for (int d = 0; d < D; d++)
				y[d] += score * k[a->C + d];
		}
		a->lse[(b * a->H + h) * a->T + t] = log(sum);
		for (int d = 0; d < D; d++) {
			y[d] /= sum;
			total += y[d] * a->dy[(b * a->T + t) * a->C + h * D + d];
		}
	}
	return total;
}

static void check_attention_at(struct ops *ops, int B, int T, int C, int H, bool gradient)
{
	size_t count = (size_t)B * T * C;
	float *qkv = fixture_floats(3 * count, 2, 1), *dy = fixture_floats(count, 1, 2),
		  *y = fixture_floats(count, NAN, 0);
	float *lse = fixture_floats((size_t)B * H * T, NAN, 0),
		  *dqkv = fixture_floats(3 * count, NAN, 0);
	struct attention_case a = { B, T, C, H, doubles(qkv, 3 * count), malloc(count * sizeof(double)),
		malloc((size_t)B * H * T * sizeof(double)), doubles(dy, count) };

	attention_exact(&a);
	ops->attention(ops, y, lse, qkv, B, T, C, H);
	fixture_near_double("attention", y, a.y, count, TOLERANCE);
	fixture_near_double("lse", lse, a.lse, (size_t)B * H * T, TOLERANCE);
	if (gradient) {
		double *exact = derivative(attention_exact, &a, a.qkv, 3 * count);

		ops->attention_backward(ops, dqkv, dy, qkv, y, lse, B, T, C, H);
		fixture_near_double("dqkv", dqkv, exact, 3 * count, TOLERANCE);
		free(exact);
	}
	free(qkv), free(dy), free(y), free(lse), free(dqkv), free(a.qkv), free(a.y), free(a.lse),
		free((void *)a.dy);
}

static void check_attention(struct ops *ops)
{
	check_attention_at(ops, 2, 5, 6, 2, true);
	check_attention_at(ops, 1, 67, 5, 1, true); /* more than one block of queries */
	check_attention_at(ops, 1, 1, 4, 2, true);
	check_attention_at(ops, 3, 200, 30, 2, false);
	check_attention_at(ops, 1, 128, 16, 1, false);
}

static void attention(void **state)
{
	on_both(check_attention);
}

/* --- loss --- */

struct head_case {
	int M, C, V;
	double *x, *wte, *losses;
	const int32_t *targets;
};

static double head_exact(const void *arg)
{
	const struct head_case *h = arg;
	double total = 0;

	for (int m = 0; m < h->M; m++) {
		double sum = 0, at_target = 0;

		for (int v = 0; v < h->V; v++) {
			double logit = 0;

			for (int c = 0; c < h->C; c++)
				logit += h->x[m * h->C + c] * h->wte[v * h->C + c];
			sum += exp(logit);
			if (v == h->targets[m])
				at_target = logit;
		}
		h->losses[m] = h->targets[m] < 0 ? 0 : log(sum) - at_target;
		total += h->losses[m];
	}
	return total;
}

static void check_head_loss(struct ops *ops)
{
	enum { M = 9, C = 14, V = 41 };
	const float scale = 0.25f;
	int32_t *targets = fixture_tokens(M, V, 1);
	float *x = fixture_floats(M * C, 1, 2), *wte = fixture_floats(V * C, 1, 3), losses[M],
		  evaluated[M];
	float *dx = fixture_floats(M * C, NAN, 0), *dwte = fixture_floats(V * C, NAN, 0);
	double exact[M], *by_x, *by_wte;
	struct head_case h = { M, C, V, doubles(x, M * C), doubles(wte, V * C), exact, targets };

	targets[4] = -1;
	ops->params->loss_scale = scale;
	by_x = derivative(head_exact, &h, h.x, M * C);
	by_wte = derivative(head_exact, &h, h.wte, V * C);
	head_exact(&h);
	for (int i = 0; i < M * C; i++)
		by_x[i] *= scale;
	for (int i = 0; i < V * C; i++)
		by_wte[i] *= scale;
	ops->head_loss(ops, losses, dx, dwte, x, wte, targets, M, C, V, 0);
	fixture_near_double("losses", losses, exact, M, TOLERANCE);
	fixture_near_double("dx", dx, by_x, M * C, TOLERANCE);
	fixture_near_double("dwte", dwte, by_wte, V * C, TOLERANCE);
	ops->head_loss(ops, losses, dx, dwte, x, wte, targets, M, C, V, 1);
	for (int i = 0; i < V * C; i++)
		by_wte[i] *= 2;
	fixture_near_double("dx again", dx, by_x, M * C, TOLERANCE);
	fixture_near_double("dwte added to", dwte, by_wte, V * C, TOLERANCE);
	ops->head_loss(ops, evaluated, NULL, NULL, x, wte, targets, M, C, V, 0);
	fixture_same_bits("losses without gradient", evaluated, losses, sizeof(losses));
	free(targets), free(x), free(wte), free(dx), free(dwte), free(h.x), free(h.wte), free(by_x),
		free(by_wte);
}

static void head_loss(void **state)
{
	on_both(check_head_loss);
}

/* Logits far apart: the loss is their distance, and no exponential overflows. */
static void check_cross_entropy(struct ops *ops)
{
	enum { V = 21 };
	float logits[2 * V] = { [3] = 500, [V + 2] = -500, [V + 7] = 500 }, losses[2];
	const int32_t targets[] = { 3, 2 };
	double exact[] = { 0, 1000 };

	ops->params->loss_scale = 2;
	ops->cross_entropy(ops, losses, logits, targets, 2, V, true);
	fixture_near_double("losses", losses, exact, 2, 1e-6);
	assert_true(logits[3] == 0 && logits[0] == 0);
	assert_true(logits[V + 2] == -2 && logits[V + 7] == 2 && logits[V] == 0);
}

static void cross_entropy(void **state)
{
	on_both(check_cross_entropy);
}

/* --- update --- */

static void check_adamw(struct ops *ops)
{
	enum { N = 70003 };
	float *w = fixture_floats(N, 1, 1), *g = fixture_floats(N, 5, 2), *m = fixture_floats(N, 1, 3);
	float *v = fixture_floats(N, 1, 4), *compute = fixture_floats(N, NAN, 0);
	double *exact = malloc(N * sizeof(*exact));
	struct step_params *p = ops->params;
	const struct adamw_state state = { w, m, v };

	*p = (struct step_params) { .learning_rate = 0.01f,
		.beta1 = 0.9f,
		.beta2 = 0.95f,
		.epsilon = 1e-8f,
		.weight_decay = 0.1f,
		.bias1 = 1 / (1 - 0.81f),
		.bias2 = 1 / (1 - 0.9025f),
		.clip = 0.5f };
	for (int decay = 0; decay < 2; decay++) {
		for (int i = 0; i < N; i++) {
			double gradient = 0.5 * (double)g[i], a, b;

			v[i] = fabsf(v[i]);
			a = 0.9 * (double)m[i] + 0.1 * gradient;
			b = 0.95 * (double)v[i] + 0.05 * gradient * gradient;
			exact[i] = (double)w[i] * (1 - (decay ? 0.01 * 0.1 : 0))
				- 0.01 * a / (1 - 0.81) / (sqrt(b / (1 - 0.9025)) + 1e-8);
		}
		ops->adamw(ops, &state, &state, compute, g, N, decay);
		fixture_near_double("weights", w, exact, N, 1e-6);
		fixture_same_bits("compute", compute, w, N * sizeof(*w));
	}
	p->masked = 1;
	ops->adamw(ops, &state, &state, compute, g, N, 1);
	fixture_same_bits("masked", compute, w, N * sizeof(*w));
	p->masked = 0;
	free(w), free(g), free(m), free(v), free(compute), free(exact);
}

static void adamw(void **state)
{
	on_both(check_adamw);
}

static void check_square_sums(struct ops *ops)
{
	enum { N = 2 * NORM_BLOCK + 77 };
	float *x = fixture_floats(N, 1e20f, 1);
	double sums[3], exact[3] = { 0 };

	ops->square_sums(ops, sums, x, N);
	for (int i = 0; i < N; i++)
		exact[i / NORM_BLOCK] += (double)x[i] * (double)x[i];
	for (int i = 0; i < 3; i++)
		assert_true(fabs(sums[i] - exact[i]) < 1e-12 * exact[i]);
	free(x);
}

static void square_sums(void **state)
{
	on_both(check_square_sums);
}

/* In the order that is promised: magnitudes are so far apart that another one rounds elsewhere. */
static void check_sum_losses(struct ops *ops)
{
	enum { N = 2 * LOSS_BLOCK + 77 };
	float *losses = fixture_floats(N, 1, 1);
	double sum = NAN, blocks[3] = { 0 };

	for (int i = 0; i < N; i++) {
		losses[i] *= i % 5 ? 1e-9f : 1e9f;
		blocks[i / LOSS_BLOCK] += (double)losses[i];
	}
	double expected = 0 + blocks[0] + blocks[1] + blocks[2];
	ops->sum_losses(ops, &sum, losses, N, 0);
	assert_true(sum == expected);
	ops->sum_losses(ops, &sum, losses, N, 1);
	assert_true(sum == expected + expected);
	free(losses);
}

static void sum_losses(void **state)
{
	on_both(check_sum_losses);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_zeroed_and_aligned),
		cmocka_unit_test(linear),
		cmocka_unit_test(linear_backward),
		cmocka_unit_test(gelu_extremes),
		cmocka_unit_test(embedding),
		cmocka_unit_test(layernorm),
		cmocka_unit_test(attention),
		cmocka_unit_test(head_loss),
		cmocka_unit_test(cross_entropy),
		cmocka_unit_test(adamw),
		cmocka_unit_test(square_sums),
		cmocka_unit_test(sum_losses),
	};

	return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
