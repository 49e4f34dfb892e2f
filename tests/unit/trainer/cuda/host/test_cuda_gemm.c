/* SPDX-License-Identifier: Apache-2.0 */
/* product: rows and columns, transposes, epilogues and choices, on a cuBLASLt that runs on the host
 * and does what its documentation says. What the real one's algorithms do is not tested here. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include "common/bytes.h"
#include "tests/fakes/fake_cublas.h"
#include "trainer/cuda/host/gemm.h"

static void *workspace;

static struct gemm_engine *engine_of(enum gemm_mode mode)
{
	struct err err = { 0 };
	struct gemm_engine *engine =
		gemm_engine_create(&fake_cublas_library, mode, "Fake", workspace, &err);
	assert_string_equal(err.text, "");
	return engine;
}

static int set_up(void **state)
{
	fake_cublas = (struct fake_cublas) { 0 };
	workspace = aligned_alloc(256, 256);
	return 0;
}

static int tear_down(void **state)
{
	free(workspace);
	assert_int_equal(fake_cublas.objects, 0);
	return 0;
}

/* ---- numbers ---- */

struct matrix {
	void *at;
	enum gemm_type type;
	size_t count;
};

static double get(const struct matrix *m, size_t i)
{
	return m->type == GEMM_BF16 ? (double)bytes_bf16_to_float(((uint16_t *)m->at)[i])
								: (double)((float *)m->at)[i];
}

static struct matrix matrix_of(enum gemm_type type, size_t count, uint32_t seed)
{
	struct matrix m = { aligned_alloc(256, (count * 4 + 255) / 256 * 256), type, count };
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		float value = (float)(seed >> 8) * 0x1p-23f - 1;
		if (type == GEMM_BF16)
			((uint16_t *)m.at)[i] = bytes_float_to_bf16(value);
		else
			((float *)m.at)[i] = value;
	}
	return m;
}

static double gelu(double x)
{
	return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

/* By the difference of neighbours, so that the slope is not the same formula twice. */
static double gelu_slope(double x)
{
	return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
}

/* Element [row, column] of what the product is to be, row by row. */
static double expected(const struct gemm *p, const struct matrix *x, const struct matrix *w,
	const struct matrix *bias, const struct matrix *kept, double before, int row, int column,
	double *keeps)
{
	double sum = p->adds ? before : 0;
	for (int k = 0; k < p->depth; k++) {
		size_t at_x = p->x_transposed ? (size_t)k * (size_t)p->rows + (size_t)row
									  : (size_t)row * (size_t)p->depth + (size_t)k;
		size_t at_w = p->w_transposed ? (size_t)column * (size_t)p->depth + (size_t)k
									  : (size_t)k * (size_t)p->columns + (size_t)column;
		sum += get(x, at_x) * get(w, at_w);
	}
	if (p->epilogue == GEMM_BIAS || p->epilogue == GEMM_BIAS_GELU || p->epilogue == GEMM_BIAS_RELU)
		sum += get(bias, (size_t)column);
	*keeps = sum;
	if (p->epilogue == GEMM_BIAS_GELU)
		return gelu(sum);
	if (p->epilogue == GEMM_BIAS_RELU)
		return fmax(sum, 0);
	return p->epilogue == GEMM_GELU_GRAD
		? sum * gelu_slope(get(kept, (size_t)row * (size_t)p->columns + (size_t)column))
		: sum;
}

static void near(const struct gemm *p, double got, double wanted, int row, int column)
{
	char text[160];
	double bound = p->out == GEMM_BF16 ? 0.01 : 1e-5;
	if (!(fabs(got - wanted) <= bound * (1 + fabs(wanted))))
		fail_msg("%s: [%d, %d] is %g instead of %g", gemm_text(p, text, sizeof text), row, column,
			got, wanted);
}

static void check_gemm(struct gemm_engine *engine, const struct gemm *p)
{
	size_t rows = (size_t)p->rows, columns = (size_t)p->columns, depth = (size_t)p->depth;
	struct matrix x = matrix_of(p->in, rows * depth, 1), w = matrix_of(p->in, depth * columns, 2),
				  bias = matrix_of(p->out, columns, 3);
	struct matrix kept = matrix_of(p->out, rows * columns, 4),
				  d = matrix_of(p->out, rows * columns, 5),
				  before = matrix_of(p->out, rows * columns, 5);
	const struct gemm_operands operands = { .d = d.at,
		.x = x.at,
		.w = w.at,
		.bias = bias.at,
		.kept = kept.at };
	struct err err = { 0 };
	if (gemm_launch(engine, p, &operands, NULL, &err) < 0)
		fail_msg("%s", err.text);
	for (int row = 0; row < p->rows; row++)
		for (int column = 0; column < p->columns; column++) {
			size_t at = (size_t)row * columns + (size_t)column;
			double keeps,
				wanted = expected(p, &x, &w, &bias, &kept, get(&before, at), row, column, &keeps);
			near(p, get(&d, at), wanted, row, column);
			if (p->epilogue == GEMM_BIAS_GELU)
				near(p, get(&kept, at), keeps, row, column);
		}
	struct matrix *all[] = { &x, &w, &bias, &kept, &d, &before };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]->at);
}

/* No two extents alike, so that none passes for another. */
static void every_kind_in(enum gemm_mode mode, enum gemm_type in, enum gemm_type out)
{
	struct gemm_engine *engine = engine_of(mode);
	for (int i = 0; i < 40; i++) {
		const struct gemm p = { .rows = 5,
			.columns = 16,
			.depth = 11,
			.x_transposed = i & 1,
			.w_transposed = i & 2,
			.adds = i & 4,
			.in = in,
			.out = out,
			.epilogue = (enum gemm_epilogue)(i / 8) };
		check_gemm(engine, &p);
	}
	assert_int_equal(gemm_choices(engine)->count, 40);
	gemm_engine_destroy(engine);
}

static void fp32_gemms_are_right(void **state)
{
	every_kind_in(GEMM_MODE_FP32, GEMM_FP32, GEMM_FP32);
}
static void tf32_gemms_are_right(void **state)
{
	every_kind_in(GEMM_MODE_TF32, GEMM_FP32, GEMM_FP32);
}

static void bf16_gemms_are_right(void **state)
{
	every_kind_in(GEMM_MODE_BF16, GEMM_BF16, GEMM_BF16);
	every_kind_in(GEMM_MODE_BF16, GEMM_BF16, GEMM_FP32);
}

static void sizes_of_one_are_right(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
	for (int i = 0; i < 8; i++)
		check_gemm(engine,
			&(struct gemm) { .rows = i & 1 ? 3 : 1,
				.columns = i & 2 ? 3 : 1,
				.depth = i & 4 ? 3 : 1 });
	gemm_engine_destroy(engine);
}

/* Without tuning that is ours to make; by a trial the library's is run: the sums of W, over and
 * over, never added to. */
static void gradients_of_biases_are_right(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_BF16);
	const struct gemm p = { .rows = 5,
		.columns = 16,
		.depth = 11,
		.x_transposed = true,
		.in = GEMM_BF16,
		.out = GEMM_FP32,
		.epilogue = GEMM_BIAS_GRAD,
		.adds = true };
	struct matrix x = matrix_of(p.in, 55, 1), w = matrix_of(p.in, 176, 2),
				  d = matrix_of(p.out, 80, 3), sums = matrix_of(p.out, 16, 4);
	const struct gemm_operands operands = { .d = d.at, .x = x.at, .w = w.at, .sums = sums.at };
	struct err err = { 0 };
	assert_false(gemm_is_there(engine, &p, &err));
	assert_int_equal(fake_cublas.heuristics, 0);
	struct gemm_trial *trial = gemm_trial_create(engine, &p, 3, &err);
	assert_int_equal(gemm_trial_count(trial), 3);
	assert_int_equal(gemm_trial_run(trial, 2, &operands, NULL, &err), 0);
	for (int column = 0; column < 16; column++) {
		double sum = 0;
		for (int k = 0; k < 11; k++)
			sum += get(&w, (size_t)(k * 16 + column));
		near(&p, get(&sums, (size_t)column), sum, 0, column);
	}
	gemm_trial_destroy(trial);
	struct matrix *all[] = { &x, &w, &d, &sums };
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		free(all[i]->at);
	gemm_engine_destroy(engine);
}

/* ---- choices ---- */

static const struct gemm one = { .rows = 4, .columns = 8, .depth = 12, .epilogue = GEMM_BIAS };

static void each_is_chosen_once(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
	struct err err;
	assert_int_equal(gemm_choose(engine, &one, &err), 0);
	check_gemm(engine, &one);
	check_gemm(engine, &one);
	assert_int_equal(fake_cublas.heuristics, 1);
	assert_int_equal(fake_cublas.plans, 2);
	gemm_engine_destroy(engine);
}

/* Sums joined in place would be joined in the order in which blocks come. */
static void what_may_not_be_used_is_passed_over(void **state)
{
	struct err err;
	for (int bad = 0; bad <= 4; bad++) {
		struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
		struct gemm plain = one;
		plain.epilogue = GEMM_PLAIN;
		fake_cublas.bad_candidates = bad;
		int rc = gemm_choose(engine, &plain, &err);
		assert_int_equal(rc, bad < 4 ? 0 : -1);
		if (rc == 0)
			assert_int_equal(gemm_choices(engine)->rows[0].algorithm[2], bad);
		else
			assert_non_null(strstr(err.text,
				"couldn't find an algorithm for 4 x 8 over 12, nn, fp32 to fp32, plain"));
		gemm_engine_destroy(engine);
	}
}

static void an_epilogue_that_is_missing_is_told(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
	struct gemm gelu_grad = one;
	struct err err;
	gelu_grad.epilogue = GEMM_GELU_GRAD;
	fake_cublas.no_epilogues = 1u << FAKE_DGELU;
	assert_true(gemm_is_there(engine, &one, &err));
	assert_false(gemm_is_there(engine, &gelu_grad, &err));
	assert_false(gemm_is_there(engine, &gelu_grad, &err));
	assert_int_equal(fake_cublas.heuristics, 2);
	assert_true(gemm_choices(engine)->rows[1].none);
	gemm_engine_destroy(engine);
}

/* cuBLASLt keeps rows of whole multiples of 8 only. */
static void odd_widths_have_no_kept_epilogue(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
	struct gemm gelu = { .rows = 4, .columns = 12, .depth = 8, .epilogue = GEMM_BIAS_GELU };
	struct err err;
	assert_false(gemm_is_there(engine, &gelu, &err));
	assert_int_equal(fake_cublas.heuristics, 0);
	gelu.columns = 16;
	assert_true(gemm_is_there(engine, &gelu, &err));
	gemm_engine_destroy(engine);
}

/* By text, as it comes from a checkpoint or from rank 0. */
static void choices_are_adopted(void **state)
{
	struct gemm_engine *first = engine_of(GEMM_MODE_FP32), *second = engine_of(GEMM_MODE_FP32);
	struct gemm dgelu = one;
	struct gemm_plans read;
	struct err err;
	dgelu.epilogue = GEMM_GELU_GRAD;
	fake_cublas.bad_candidates = 3;
	fake_cublas.no_epilogues = 1u << FAKE_DGELU;
	assert_int_equal(gemm_choose(first, &one, &err), 0);
	assert_int_equal(gemm_choose(first, &dgelu, &err), 0);
	char *text = gemm_plans_encode(gemm_choices(first));
	fake_cublas = (struct fake_cublas) { .objects = fake_cublas.objects };
	assert_int_equal(gemm_plans_decode(text, &read, &err), 0);
	assert_int_equal(gemm_adopt(second, &read, &err), 0);
	check_gemm(second, &one);
	assert_false(gemm_is_there(second, &dgelu, &err)); /* though this library has one */
	assert_int_equal(fake_cublas.heuristics, 0);
	char *again = gemm_plans_encode(gemm_choices(second));
	assert_string_equal(text, again);
	free(text);
	free(again);
	gemm_plans_clear(&read);
	gemm_engine_destroy(first);
	gemm_engine_destroy(second);
}

static void choices_that_do_not_fit_are_refused(void **state)
{
	struct gemm_engine *first = engine_of(GEMM_MODE_FP32), *other;
	struct gemm_choice odd;
	struct err err;
	assert_int_equal(gemm_choose(first, &one, &err), 0);
	odd = gemm_choices(first)->rows[0];
	const struct gemm_plans of_first = { .library = 130001,
		.card = "Fake",
		.rows = &odd,
		.count = 1 };
	other = engine_of(GEMM_MODE_TF32);
	assert_int_equal(gemm_adopt(other, &of_first, &err), -1);
	assert_non_null(strstr(err.text, "--precision fp32, and this is tf32"));
	gemm_engine_destroy(other);
	other = engine_of(GEMM_MODE_FP32);
	fake_cublas.refuses = true;
	assert_int_equal(gemm_adopt(other, &of_first, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(
		strstr(err.text, "doesn't take the algorithm that was chosen for 4 x 8 over 12"));
	assert_int_equal(gemm_choices(other)->count, 0);
	fake_cublas.refuses = false;
	odd.algorithm[1] = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
	assert_int_equal(gemm_adopt(other, &of_first, &err), -1);
	odd.algorithm[1] = 0;
	odd.algorithm[0] ^= 1;
	assert_int_equal(gemm_adopt(other, &of_first, &err), -1);
	odd.algorithm[0] ^= 1;
	assert_int_equal(gemm_adopt(other, &of_first, &err), 0);
	gemm_engine_destroy(first);
	gemm_engine_destroy(other);
}

static void faults_of_the_library_are_told(void **state)
{
	struct gemm_engine *engine = engine_of(GEMM_MODE_FP32);
	struct err err;
	char memory[1024] __attribute__((aligned(256)));
	const struct gemm_operands crooked = { .d = memory,
		.x = memory + 4,
		.w = memory,
		.bias = memory,
		.kept = memory };
	assert_int_equal(gemm_launch(engine, &one, &crooked, NULL, &err), -1);
	assert_non_null(strstr(err.text, "cublas: couldn't run matmul("));
	assert_non_null(strstr(err.text, "invalid value (7, trainer/cuda/host/gemm.c:"));
	gemm_engine_destroy(engine);
}

/* Its calls need no GPU until there is a handle. */
static void the_real_library_has_all_calls(void **state)
{
	struct err err = { 0 };
	const struct cublas *lib = cublas_load(&err);
	if (!lib && strstr(err.text, "couldn't load"))
		skip();
	assert_string_equal(err.text, "");
	assert_int_equal(lib->version() / 10000, CUBLAS_VER_MAJOR);
	assert_int_equal(CUBLAS_CHECK(lib, desc_destroy(NULL), &err), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(fp32_gemms_are_right),
		TEST(tf32_gemms_are_right),
		TEST(bf16_gemms_are_right),
		TEST(sizes_of_one_are_right),
		TEST(gradients_of_biases_are_right),
		TEST(each_is_chosen_once),
		TEST(what_may_not_be_used_is_passed_over),
		TEST(an_epilogue_that_is_missing_is_told),
		TEST(odd_widths_have_no_kept_epilogue),
		TEST(choices_are_adopted),
		TEST(choices_that_do_not_fit_are_refused),
		TEST(faults_of_the_library_are_told),
		TEST(the_real_library_has_all_calls),
#undef TEST
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
