/* SPDX-License-Identifier: Apache-2.0 */
/* ops: the fast CPU table against the plain one over odd sizes, at every instruction set that this
 * CPU has; those give the same bits where no library computes; what is not finite stays visible. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cpu/cpu.h"
#include "trainer/cpu/isa.h"
#include "trainer/cpu/kernels.h"

#define TOLERANCE 1e-5

static const struct kernels *const tables[] = {
	&kernels_default,
#ifdef __x86_64__
	&kernels_avx2,
	&kernels_avx512,
#endif
};

static void use(struct ops *ops, int table)
{
	cpu_of(ops)->kernels = tables[table];
}

/* Linear layers: [M, K, N] around the tiles' borders. */
static void linear_sizes(void **state)
{
	static const int sizes[][3] = { { 1, 1, 1 }, { 1, 300, 5 }, { 3, 17, 65 }, { 257, 33, 49 },
		{ 300, 129, 800 }, { 64, 64, 2305 }, { 1030, 40, 97 } };
	struct ops *plain = fixture_ops(true, 8, 256, 16, 1, 16),
			   *fast = fixture_ops(false, 8, 256, 16, 1, 16);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int M = sizes[i][0], K = sizes[i][1], N = sizes[i][2];
		size_t mk = (size_t)M * K, kn = (size_t)K * N, mn = (size_t)M * N;
		float *x = fixture_floats(mk, 1, 1), *w = fixture_floats(kn, 1, 2),
			  *bias = fixture_floats((size_t)N, 1, 3);
		float *a = fixture_floats(mn, NAN, 0), *b = fixture_floats(mn, NAN, 0),
			  *pa = fixture_floats(mn, NAN, 0);
		float *pb = fixture_floats(mn, NAN, 0), *dy = fixture_floats(mn, 1, 4),
			  *da = fixture_floats(mk, NAN, 0);
		float *db = fixture_floats(mk, NAN, 0), *wa = fixture_floats(kn, 1, 5),
			  *wb = fixture_floats(kn, 1, 5);
		float *ba = fixture_floats((size_t)N, 1, 6), *bb = fixture_floats((size_t)N, 1, 6);

		plain->linear_gelu(plain, a, pa, x, w, bias, M, K, N);
		fast->linear_gelu(fast, b, pb, x, w, bias, M, K, N);
		fixture_near("linear_gelu", b, a, mn, TOLERANCE);
		fixture_near("pre", pb, pa, mn, TOLERANCE);
		plain->linear_backward_input_gelu(plain, da, dy, w, x, M, K, N);
		fast->linear_backward_input_gelu(fast, db, dy, w, x, M, K, N);
		fixture_near("dx", db, da, mk, TOLERANCE);
		for (int accumulate = 1; accumulate >= 0; accumulate--) {
			plain->linear_backward_weight(plain, wa, ba, x, dy, M, K, N, accumulate);
			fast->linear_backward_weight(fast, wb, bb, x, dy, M, K, N, accumulate);
			fixture_near("dw", wb, wa, kn, TOLERANCE);
			fixture_near("dbias", bb, ba, (size_t)N, TOLERANCE);
		}
		free(x), free(w), free(bias), free(a), free(b), free(pa), free(pb), free(dy), free(da),
			free(db);
		free(wa), free(wb), free(ba), free(bb);
	}
	plain->destroy(plain);
	fast->destroy(fast);
}

/* The tile kernel, which attention and builds without oneDNN rest on, over strides and
 * accumulation. */
static void tile_gemms(void **state)
{
	static const int sizes[][3] = { { 1, 1, 1 }, { 8, 32, 16 }, { 9, 33, 64 }, { 7, 15, 3 },
		{ 64, 64, 64 }, { 13, 48, 5 } };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], ld = n + 3;
		float *a = fixture_floats((size_t)m * k, 1, 1), *b = fixture_floats((size_t)k * ld, 1, 2);
		float *first = NULL;
		double *exact = malloc((size_t)m * ld * sizeof(*exact));

		for (int e = 0; e < m * ld; e++) { /* columns from n on have to stay as they are */
			exact[e] = 0.5;
			for (int j = 0; e % ld < n && j < k; j++)
				exact[e] += (double)a[j * m + e / ld] * (double)b[j * ld + e % ld];
		}
		for (size_t t = 0; t < sizeof(tables) / sizeof(*tables) && t <= (size_t)cpu_isa(); t++) {
			float *c = fixture_floats((size_t)m * ld, 0.5f, 0);

			tables[t]->gemm(&(
				struct tile_gemm) { m, n, k, a, 1, (size_t)m, b, (size_t)ld, c, (size_t)ld, true });
			fixture_near_double("c", c, exact, (size_t)m * ld, TOLERANCE);
			if (first)
				fixture_same_bits("c", c, first, (size_t)m * ld * sizeof(*c));
			free(first);
			first = c;
		}
		free(a), free(b), free(exact), free(first);
	}
}

/* The product of builds without oneDNN, around the borders of its blocks, with every operand stored
 * either way. */
static void block_gemms(void **state)
{
	static const int sizes[][3] = { { 1, 1, 1 }, { 8, 64, 256 }, { 9, 67, 259 }, { 261, 70, 5 },
		{ 3, 2, 530 }, { 30, 130, 31 } };

	for (size_t i = 0; i < 4 * sizeof(sizes) / sizeof(*sizes); i++) {
		int m = sizes[i / 4][0], n = sizes[i / 4][1], k = sizes[i / 4][2];
		size_t ar = i & 1 ? 1 : (size_t)k, ac = i & 1 ? (size_t)m : 1, br = i & 2 ? 1 : (size_t)n,
			   bc = i & 2 ? (size_t)k : 1;
		float *a = fixture_floats((size_t)m * k, 1, 1), *b = fixture_floats((size_t)k * n, 1, 2),
			  *first = NULL;
		double *exact = malloc((size_t)m * n * sizeof(*exact));

		for (int e = 0; e < m * n; e++) {
			exact[e] = 0.5;
			for (int j = 0; j < k; j++)
				exact[e] += (double)a[e / n * ar + j * ac] * (double)b[j * br + e % n * bc];
		}
		for (size_t t = 0; t < sizeof(tables) / sizeof(*tables) && t <= (size_t)cpu_isa(); t++) {
			float *c = fixture_floats((size_t)m * n, 0.5f, 0);

			tables[t]->gemm_block(
				&(struct block_gemm) { m, n, k, a, ar, ac, b, br, bc, c, (size_t)n, true });
			fixture_near_double("c", c, exact, (size_t)m * n, TOLERANCE);
			if (first)
				fixture_same_bits("c", c, first, (size_t)m * n * sizeof(*c));
			free(first);
			first = c;
		}
		free(a), free(b), free(exact), free(first);
	}
}

/* Everything that has kernels of its own: results of one table and one size, one after the other.
 */
struct outputs {
	size_t count, used;
	float *all;
	size_t starts[40];
	int arrays;
};

/* Of the arrays, in the order in which run_rows takes them. */
static const char *const names[] = { "sum", "mean", "rstd", "attention", "lse",
	"gradient of the logits", "dgamma", "dbeta", "dwte", "layernorm", "dx of layernorm", "dqkv",
	"losses", "dwpe", "relu", "gelu", "dx through gelu", "dx through relu", "dw", "dbias" };

static float *take(struct outputs *out, size_t count)
{
	float *p = out->all + out->used;

	out->starts[out->arrays++] = out->used;
	out->used += count;
	assert_true(out->used <= out->count);
	return p;
}

static void run_rows(struct ops *ops, struct outputs *out, int B, int T, int C, int H, int V)
{
	int M = B * T;
	size_t mc = (size_t)M * C, mv = (size_t)M * V;
	float *x = fixture_floats(mc, 2, 1), *add = fixture_floats(mc, 1, 2),
		  *gamma = fixture_floats((size_t)C, 1, 3);
	float *beta = fixture_floats((size_t)C, 1, 4), *dy = fixture_floats(mc, 1, 5),
		  *qkv = fixture_floats(3 * mc, 2, 6);
	float *logits = fixture_floats(mv, 8, 7), *w = fixture_floats((size_t)C * C, 1, 9);
	float *sum = take(out, mc), *mean = take(out, (size_t)M), *rstd = take(out, (size_t)M),
		  *y = take(out, mc);
	float *lse = take(out, (size_t)M * H), *gradients = take(out, mv);
	int32_t *targets = fixture_tokens(M, V, 8);
	float *dgamma = take(out, (size_t)C), *dbeta = take(out, (size_t)C),
		  *dwte = take(out, (size_t)V * C), *dw;

	targets[0] = -1;
	ops->layernorm(ops, sum, take(out, mc), mean, rstd, x, add, gamma, beta, M, C);
	ops->layernorm_backward(ops, take(out, mc), dgamma, dbeta, dy, sum, gamma, mean, rstd, M, C, 0,
		0);
	ops->attention(ops, y, lse, qkv, B, T, C, H);
	ops->attention_backward(ops, take(out, 3 * mc), dy, qkv, y, lse, B, T, C, H);
	memcpy(gradients, logits, mv * sizeof(*logits));
	ops->cross_entropy(ops, take(out, (size_t)M), gradients, targets, M, V, true);
	memset(dwte, 0, (size_t)V * C * sizeof(*dwte));
	targets[0] = 0;
	ops->embedding_backward(ops, dwte, take(out, (size_t)T * C), dy, targets, B, T, C, V, 0);
	y = take(out, mc);
	ops->linear_gelu(ops, take(out, mc), y, x, w, beta, M, C, C);
	ops->linear_backward_input_gelu(ops, take(out, mc), dy, w, y, M, C, C);
	ops->linear_relu(ops, y, x, w, beta, M, C, C);
	ops->linear_backward_input_relu(ops, take(out, mc), dy, w, y, M, C, C);
	dw = take(out, (size_t)C * C);
	ops->linear_backward_weight(ops, dw, take(out, (size_t)C), x, dy, M, C, C, 0);
	free(x), free(add), free(gamma), free(beta), free(dy), free(qkv), free(logits), free(targets),
		free(w);
}

static void rows_at_every_isa(void **state)
{
	static const int sizes[][5] = { { 1, 1, 4, 2, 3 }, { 2, 33, 30, 3, 19 }, { 1, 130, 64, 1, 257 },
		{ 3, 64, 72, 4, 100 }, { 1, 65, 520, 2, 33 } /* heads of 260: too wide for the tiles */ };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		int B = sizes[i][0], T = sizes[i][1], C = sizes[i][2], H = sizes[i][3], V = sizes[i][4],
			M = B * T;
		size_t count = (size_t)M * (13 * C + V + H + 3) + (size_t)(V + T + C + 3) * C;
		struct ops *plain = fixture_ops(true, B, T, C, H, V),
				   *fast = fixture_ops(false, B, T, C, H, V);
		struct outputs want = { .count = count, .all = fixture_floats(count, 0, 0) }, got,
					   first = { 0 };

		run_rows(plain, &want, B, T, C, H, V);
		for (size_t t = 0; t < sizeof(tables) / sizeof(*tables) && t <= (size_t)cpu_isa(); t++) {
			use(fast, (int)t);
			got = (struct outputs) { .count = count, .all = fixture_floats(count, 0, 0) };
			run_rows(fast, &got, B, T, C, H, V);
			for (int a = 0; a < want.arrays; a++) {
				size_t start = want.starts[a],
					   end = a + 1 < want.arrays ? want.starts[a + 1] : want.used;

				fixture_near(names[a], got.all + start, want.all + start, end - start, TOLERANCE);
			}
			if (first.all)
				fixture_same_bits("rows at two instruction sets", got.all, first.all,
					got.used * sizeof(float));
			free(first.all);
			first = got;
		}
		free(first.all), free(want.all);
		plain->destroy(plain);
		fast->destroy(fast);
	}
}

/* Whether the new weights and moments go elsewhere or stay in place, they have the same bits; the
 * old ones stay, and nothing after the last element is written. Aligned or not, which decides how
 * they are stored. */
static void update_goes_elsewhere(struct ops *ops, size_t n, size_t shift)
{
	enum { BEHIND = 16 };
	float *g = fixture_floats(n, 3, 1), *start[3], *in_place[3],
		  *block = aligned_alloc(64, (3 * (n + 64) * 4 + 63) / 64 * 64);
	struct adamw_state from, to, same;

	for (int a = 0; a < 3; a++) {
		start[a] = fixture_floats(n, 1, 2 + (uint32_t)a),
		in_place[a] = fixture_floats(n, 1, 2 + (uint32_t)a);
		for (size_t e = 0; e < n; e++)
			start[a][e] = in_place[a][e] = fabsf(start[a][e]);
	}
	from = (struct adamw_state) { start[0], start[1], start[2] };
	same = (struct adamw_state) { in_place[0], in_place[1], in_place[2] };
	to.weights = block + shift;
	to.m = to.weights + (n + BEHIND + 15) / 16 * 16;
	to.v = to.m + (n + BEHIND + 15) / 16 * 16;
	float *const places[] = { to.weights, to.m, to.v };
	for (int a = 0; a < 3; a++)
		for (size_t e = 0; e < n + BEHIND; e++)
			places[a][e] = 7;
	ops->params->masked = 1;
	ops->adamw(ops, &to, &from, to.weights, g, n, 1);
	assert_true(to.weights[0] == 7 && to.m[n - 1] == 7 && to.v[n / 2] == 7);
	ops->params->masked = 0;
	ops->adamw(ops, &to, &from, to.weights, g, n, 1);
	ops->adamw(ops, &same, &same, same.weights, g, n, 1);
	for (int a = 0; a < 3; a++) {
		fixture_same_bits("elsewhere", places[a], in_place[a], n * sizeof(float));
		float *again = fixture_floats(n, 1, 2 + (uint32_t)a);
		for (size_t e = 0; e < n; e++)
			assert_true(start[a][e] == fabsf(again[e]));
		for (size_t e = n; e < n + BEHIND; e++)
			assert_true(places[a][e] == 7);
		free(start[a]), free(in_place[a]), free(again);
	}
	free(block), free(g);
}

static void updates_go_elsewhere(void **state)
{
	static const size_t counts[] = { 1, 16, 255, ELEMENTS + 3, 2 * ELEMENTS };
	struct ops *ops[2] = { fixture_ops(true, 1, 1, 4, 1, 4), fixture_ops(false, 1, 1, 4, 1, 4) };

	for (int j = 0; j < 2; j++)
		for (int t = 0; t <= (j ? (int)cpu_isa() : 0); t++)
			for (size_t i = 0; i < 2 * sizeof(counts) / sizeof(*counts); i++) {
				if (j)
					use(ops[j], t);
				*ops[j]->params = (struct step_params) { .learning_rate = 0.01f,
					.beta1 = 0.9f,
					.beta2 = 0.95f,
					.epsilon = 1e-8f,
					.weight_decay = 0.1f,
					.bias1 = 1.25f,
					.bias2 = 3,
					.clip = 0.7f };
				update_goes_elsewhere(ops[j], counts[i / 2], i % 2 * 3);
			}
	ops[0]->destroy(ops[0]);
	ops[1]->destroy(ops[1]);
}

/* The update's bits are the plain ones, at every instruction set and count. */
static void updates_have_the_plain_bits(void **state)
{
	static const size_t counts[] = { 1, 15, 16, 17, 255, ELEMENTS + 3, NORM_BLOCK,
		2 * NORM_BLOCK + 65 };
	struct ops *ops[2] = { fixture_ops(true, 1, 1, 4, 1, 4), fixture_ops(false, 1, 1, 4, 1, 4) };

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		for (int t = 0; t <= (int)cpu_isa(); t++) {
			size_t n = counts[i];
			float *w[2], *m[2], *v[2], *g = fixture_floats(n, 3, 1), *sum[2];
			double squares[2][(ELEMENTS + 3) / NORM_BLOCK + 1];

			use(ops[1], t);
			for (int j = 0; j < 2; j++) {
				w[j] = fixture_floats(n, 1, 2), m[j] = fixture_floats(n, 1, 3),
				v[j] = fixture_floats(n, 1, 4);
				sum[j] = fixture_floats(n, 1, 5);
				for (size_t e = 0; e < n; e++)
					v[j][e] = fabsf(v[j][e]);
				*ops[j]->params = (struct step_params) { .learning_rate = 0.01f,
					.beta1 = 0.9f,
					.beta2 = 0.95f,
					.epsilon = 1e-8f,
					.weight_decay = 0.1f,
					.bias1 = 1.25f,
					.bias2 = 3,
					.clip = 0.7f };
				const struct adamw_state state_of = { w[j], m[j], v[j] };
				ops[j]->adamw(ops[j], &state_of, &state_of, w[j], g, n, 1);
				ops[j]->add(ops[j], sum[j], sum[j], g, n);
				ops[j]->square_sums(ops[j], squares[j], g, n);
			}
			fixture_same_bits("w", w[1], w[0], n * sizeof(float));
			fixture_same_bits("m", m[1], m[0], n * sizeof(float));
			fixture_same_bits("v", v[1], v[0], n * sizeof(float));
			fixture_same_bits("a + b", sum[1], sum[0], n * sizeof(float));
			fixture_same_bits("squares", squares[1], squares[0],
				(n + NORM_BLOCK - 1) / NORM_BLOCK * sizeof(double));
			for (int j = 0; j < 2; j++)
				free(w[j]), free(m[j]), free(v[j]), free(sum[j]);
			free(g);
		}
	ops[0]->destroy(ops[0]);
	ops[1]->destroy(ops[1]);
}

/* A NaN or an infinity of an input reaches the result, wherever it lies. */
static void not_finite_stays_visible(void **state)
{
	enum { B = 1, T = 70, C = 36, H = 2, V = 37, M = B * T };
	static const float bad[] = { NAN, INFINITY };
	struct ops *ops = fixture_ops(false, B, T, C, H, V);

	for (int t = 0; t <= (int)cpu_isa(); t++)
		for (int i = 0; i < 2 * M; i++) {
			float *x = fixture_floats(3 * M * C, 1, 1), *y = fixture_floats(M * C, 0, 0),
				  *lse = fixture_floats(M * H, 0, 0);
			float *w = fixture_floats(V * C, 1, 2), mean[M], rstd[M], losses[M];
			int32_t *targets = fixture_tokens(M, V, 3);
			int row = i / 2;
			double squares;

			use(ops, t);
			x[row * C + i % C] = bad[i % 2];
			ops->layernorm(ops, NULL, y, mean, rstd, x, NULL, w, w, M, C);
			assert_false(isfinite(y[row * C + i % C]));
			ops->head_loss(ops, losses, NULL, NULL, x, w, targets, M, C, V, 0);
			assert_false(isfinite(losses[row]));
			ops->square_sums(ops, &squares, x, M * C);
			assert_false(isfinite(squares));
			x[row * C + i % C] = 1;
			x[row * 3 * C + 2 * C + i % C] = bad[i % 2]; /* of v */
			ops->attention(ops, y, lse, x, B, T, C, H);
			assert_false(isfinite(y[(M - 1) * C + i % C]));
			ops->linear_gelu(ops, y, y + C, x + row * 3 * C + 2 * C, w, NULL, 1, C, V);
			assert_false(isfinite(y[0] + y[V - 1]));
			free(x), free(y), free(lse), free(w), free(targets);
		}
	ops->destroy(ops);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_sizes),
		cmocka_unit_test(tile_gemms),
		cmocka_unit_test(block_gemms),
		cmocka_unit_test(rows_at_every_isa),
		cmocka_unit_test(updates_go_elsewhere),
		cmocka_unit_test(updates_have_the_plain_bits),
		cmocka_unit_test(not_finite_stays_visible),
	};

	return cmocka_run_group_tests_name("ops_fast", tests, NULL, NULL);
}
