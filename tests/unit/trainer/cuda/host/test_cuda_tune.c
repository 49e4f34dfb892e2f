/* SPDX-License-Identifier: Apache-2.0 */
/* tune: what is chosen when algorithms take so long, give other numbers, fail, or there is no time,
 * by a cuBLASLt and a runtime whose clock goes on as the test says. How long anything takes on a
 * GPU is not tested here. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include <cuda_runtime_api.h>

#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_runtime.h"
#include "trainer/cuda/host/tune.h"

static void *workspace;
static float scratch[4096];
static cudaStream_t stream;

static double clock_of_the_test(void)
{
	return fake_runtime.now * 1e-3;
}

static int set_up(void **state)
{
	fake_cublas = (struct fake_cublas) { .clock = &fake_runtime.now };
	fake_runtime = (struct fake_runtime) { 0 };
	fake_stream_order(FAKE_LAZY, 0); /* nothing is there before it was waited for */
	workspace = aligned_alloc(256, 256);
	return (int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
}

/* Whatever was made is given back. */
static int tear_down(void **state)
{
	free(workspace);
	cudaStreamDestroy(stream);
	assert_int_equal(fake_cublas.objects, 0);
	assert_int_equal(fake_runtime.used, 0);
	assert_int_equal(fake_runtime.events, 0);
	return 0;
}

static struct tune tune_of(enum gemm_mode mode, double seconds)
{
	struct err err = { 0 };
	struct tune tune = { .engine = gemm_engine_create(&fake_cublas_library, mode, "Fake", workspace,
							 &err),
		.stream = stream,
		.scratch = scratch,
		.cache = 1000,
		.seconds = seconds,
		.now = clock_of_the_test };
	assert_string_equal(err.text, "");
	return tune;
}

static const struct gemm plain = { .rows = 5, .columns = 16, .depth = 11 };

static struct tune_result tuned(const struct tune *tune, const struct gemm *list, size_t count)
{
	struct tune_result result;
	struct err err = { 0 };
	if (tune_gemms(tune, list, count, &result, &err) < 0)
		fail_msg("%s", err.text);
	return result;
}

static const struct gemm_choice *choice_of(const struct tune *tune, const struct gemm *gemm)
{
	const struct gemm_choice *choice = gemm_plans_find(gemm_choices(tune->engine), gemm);
	assert_non_null(choice);
	return choice;
}

/* ---- durations ---- */

/* Milliseconds of an epilogue's candidates: of any other one the first row's. */
static struct {
	double of[FAKE_EPILOGUES][4];
	int every; /* one run in this many takes ten times as long */
} times;

static double duration(int epilogue, int candidate, int run)
{
	return times.of[epilogue][candidate] * (times.every && run % times.every == 0 ? 10 : 1);
}

static void plain_takes(double a, double b, double c, double d)
{
	const double row[4] = { a, b, c, d };
	memset(&times, 0, sizeof times);
	memcpy(times.of[FAKE_DEFAULT], row, sizeof row);
	fake_cublas.duration = duration;
}

/* Which of the four was chosen. */
static uint64_t chosen_of_four(struct tune_result *result)
{
	struct tune tune = tune_of(GEMM_MODE_FP32, 30);
	*result = tuned(&tune, &plain, 1);
	uint64_t candidate = choice_of(&tune, &plain)->algorithm[2];
	gemm_engine_destroy(tune.engine);
	return candidate;
}

static void the_fastest_is_chosen(void **state)
{
	struct tune_result result;
	plain_takes(3, 2, 1, 2.5);
	assert_int_equal(chosen_of_four(&result), 2);
	assert_int_equal(result.timed, 1);
	assert_int_equal(result.others, 1);
	assert_true(result.first > 2.999 && result.first < 3.001);
	assert_true(result.best > 0.999 && result.best < 1.001);
	plain_takes(0.002, 0.002, 0.002, 0.001); /* repeated in a round */
	assert_int_equal(chosen_of_four(&result), 3);
}

static void what_is_hardly_faster_is_not_chosen(void **state)
{
	struct tune_result result;
	plain_takes(1, 0.995, 0.991, 1);
	assert_int_equal(chosen_of_four(&result), 0);
	assert_int_equal(result.others, 0);
	assert_true(result.first == result.best);
	plain_takes(1, 1, 0.98, 1);
	assert_int_equal(chosen_of_four(&result), 2);
	plain_takes(1, 0.9, 0.9, 0.9); /* the library's order */
	assert_int_equal(chosen_of_four(&result), 1);
}

/* A run that something else delayed says nothing of its algorithm. */
static void single_runs_do_not_count(void **state)
{
	struct tune_result result;
	plain_takes(1, 0.9, 2, 2);
	for (times.every = 5; times.every <= 13; times.every += 2)
		assert_int_equal(chosen_of_four(&result), 1);
}

/* ---- faults ---- */

static void what_gives_other_numbers_is_left_out(void **state)
{
	struct tune_result result;
	plain_takes(4, 3, 2, 1);
	fake_cublas.wrong = 1u << 3;
	assert_int_equal(chosen_of_four(&result), 2);
	assert_int_equal(result.wrong, 1);
	fake_cublas.wanders = 1u << 2;
	assert_int_equal(chosen_of_four(&result), 1);
	assert_int_equal(result.wrong, 2);
	fake_cublas.fails = 1u << 1 | 1u << 2;
	assert_int_equal(chosen_of_four(&result), 0);
	assert_int_equal(result.wrong, 3);
	fake_cublas.fails = 1u << 0;
	assert_int_equal(chosen_of_four(&result), 1);
	assert_true(result.first == result.best); /* what would have been taken can't be run */
}

static void a_gemm_that_fails_by_all_is_told(void **state)
{
	struct tune tune = tune_of(GEMM_MODE_FP32, 30);
	struct tune_result result;
	struct err err = { 0 };
	fake_cublas.fails = 15;
	assert_int_equal(tune_gemms(&tune, &plain, 1, &result, &err), -1);
	assert_non_null(strstr(err.text,
		"tune: couldn't make 5 x 16 over 11, nn, fp32 to fp32, plain: none of cuBLASLt's "
		"algorithms"));
	gemm_engine_destroy(tune.engine);
}

static void a_device_that_fails_is_told(void **state)
{
	struct tune tune = tune_of(GEMM_MODE_FP32, 30);
	struct tune_result result;
	struct err err = { 0 };
	fake_runtime.copies_fail = cudaErrorLaunchFailure;
	assert_int_equal(tune_gemms(&tune, &plain, 1, &result, &err), -1);
	assert_non_null(strstr(err.text, "unspecified launch failure"));
	gemm_engine_destroy(tune.engine);
}

/* ---- limits ---- */

static void time_has_an_end(void **state)
{
	struct gemm list[6];
	plain_takes(100, 50, 100, 100);
	for (int i = 0; i < 6; i++) {
		list[i] = plain;
		list[i].rows = 4 + i;
	}
	struct tune tune = tune_of(GEMM_MODE_FP32, 20);
	double begin = clock_of_the_test();
	struct tune_result result = tuned(&tune, list, 6);
	assert_true(clock_of_the_test() - begin < 23); /* a product more, at most */
	assert_true(result.timed > 0 && result.timed + result.untimed == 6);
	gemm_engine_destroy(tune.engine);
	tune = tune_of(GEMM_MODE_FP32,
		1); /* enough for no product's rounds: the library's first, as without */
	result = tuned(&tune, list, 6);
	assert_int_equal(result.timed, 0);
	assert_int_equal(result.untimed, 6);
	for (size_t i = 0; i < gemm_choices(tune.engine)->count; i++)
		assert_int_equal(gemm_choices(tune.engine)->rows[i].algorithm[2], 0);
	gemm_engine_destroy(tune.engine);
}

static void memory_has_an_end(void **state)
{
	struct tune tune = tune_of(GEMM_MODE_FP32, 30);
	fake_runtime.most = 1 << 20;
	struct tune_result result = tuned(&tune, &plain, 1);
	assert_int_equal(result.timed, 0);
	assert_int_equal(result.untimed, 1);
	assert_int_equal(gemm_choices(tune.engine)->count, 0);
	gemm_engine_destroy(tune.engine);
}

/* What was chosen stays, at a resume above all. */
static void choices_are_kept(void **state)
{
	struct tune tune = tune_of(GEMM_MODE_FP32, 30);
	struct err err = { 0 };
	plain_takes(3, 2, 1, 2.5);
	assert_int_equal(gemm_choose(tune.engine, &plain, &err), 0);
	int heuristics = fake_cublas.heuristics;
	struct tune_result result = tuned(&tune, &plain, 1);
	assert_int_equal(result.timed + result.untimed, 0);
	assert_int_equal(fake_cublas.heuristics, heuristics);
	assert_int_equal(choice_of(&tune, &plain)->algorithm[2], 0);
	gemm_engine_destroy(tune.engine);
}

/* ---- epilogues ---- */

static struct gemm with(enum gemm_epilogue epilogue)
{
	struct gemm gemm = plain;
	gemm.epilogue = epilogue;
	return gemm;
}

/* The library's epilogue, unless the plain product and our kernel (which take no time here) are
 * faster. */
static void epilogues_are_timed_against_ours(void **state)
{
	static const struct {
		enum gemm_epilogue epilogue;
		int place;
	} cases[] = { { GEMM_BIAS, FAKE_BIAS }, { GEMM_BIAS_GELU, FAKE_GELU_AUX_BIAS },
		{ GEMM_BIAS_RELU, FAKE_RELU_BIAS }, { GEMM_GELU_GRAD, FAKE_DGELU } };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int ours = 0; ours < 2; ours++) {
			struct tune tune = tune_of(GEMM_MODE_FP32, 30);
			struct gemm gemm = with(cases[i].epilogue);
			plain_takes(ours ? 0.9 : 1.1, 2, 2, 2);
			for (int k = 0; k < 4; k++)
				times.of[cases[i].place][k] = k == 1 ? 1 : 1.2;
			struct tune_result result = tuned(&tune, &gemm, 1);
			assert_int_equal(result.timed, 2);
			assert_int_equal(result.wrong, 0);
			assert_int_equal(choice_of(&tune, &plain)->algorithm[2], 0);
			assert_int_equal(choice_of(&tune, &gemm)->none, ours);
			assert_int_equal(choice_of(&tune, &gemm)->algorithm[2], ours ? 0 : 1);
			gemm_engine_destroy(tune.engine);
		}
}

/* At a resume nothing is timed again, though other ways would win now. */
static void check_resume(const char *text, const struct gemm *gemm)
{
	struct tune tune = tune_of(GEMM_MODE_BF16, 30);
	struct gemm_plans plans;
	struct err err = { 0 };
	assert_int_equal(gemm_plans_decode(text, &plans, &err), 0);
	assert_int_equal(gemm_adopt(tune.engine, &plans, &err), 0);
	plain_takes(2, 1, 2, 2);
	times.of[FAKE_BGRADA][3] = 0.1;
	struct tune_result result = tuned(&tune, gemm, 1);
	assert_int_equal(result.timed + result.untimed, 0);
	char *again = gemm_plans_encode(gemm_choices(tune.engine));
	assert_string_equal(again, text);
	free(again);
	gemm_plans_clear(&plans);
	gemm_engine_destroy(tune.engine);
}

/* The other way round: our sums, unless the library's epilogue is faster; and then that is in the
 * record. */
static void sums_of_a_bias_are_ours_unless_slower(void **state)
{
	for (int adds = 0; adds < 2; adds++)
		for (int theirs = 0; theirs < 2; theirs++) {
			struct tune tune = tune_of(GEMM_MODE_BF16, 30);
			struct gemm gemm = { .rows = 5,
				.columns = 16,
				.depth = 33,
				.x_transposed = true,
				.in = GEMM_BF16,
				.out = GEMM_FP32,
				.epilogue = GEMM_BIAS_GRAD,
				.adds = adds };
			plain_takes(1, 2, 2, 2);
			for (int k = 0; k < 4; k++)
				times.of[FAKE_BGRADA][k] = k == 2 ? theirs ? 0.9 : 0.995 : 1.2;
			struct tune_result result = tuned(&tune, &gemm, 1);
			assert_int_equal(result.timed, 2);
			assert_int_equal(result.wrong, 0);
			assert_int_equal(result.others, theirs);
			assert_int_equal(choice_of(&tune, &gemm)->none, !theirs);
			char *text = gemm_plans_encode(gemm_choices(tune.engine));
			assert_int_equal(strncmp(text, theirs ? "muster-products 2 " : "muster-products 1 ",
								 18),
				0);
			check_resume(text, &gemm);
			free(text);
			gemm_engine_destroy(tune.engine);
		}
}

/* Of each kind with all types; none is wrong, so what is compared is what they make. */
static void all_kinds_are_right(void **state)
{
	plain_takes(1, 2, 3, 4);
	for (int mode = GEMM_MODE_FP32; mode <= GEMM_MODE_BF16; mode++)
		for (int epilogue = GEMM_PLAIN; epilogue <= GEMM_BIAS_GRAD; epilogue++)
			for (int layout = 0; layout < 8; layout++) {
				enum gemm_type in = mode == GEMM_MODE_BF16 ? GEMM_BF16 : GEMM_FP32;
				bool gradient = epilogue == GEMM_BIAS_GRAD;
				struct gemm gemm = { .rows = 9,
					.columns = 24,
					.depth = 17,
					.x_transposed = layout & 1,
					.w_transposed = layout & 2,
					.adds = (layout & 4) && (gradient || epilogue == GEMM_PLAIN),
					.in = in,
					.out = gradient ? GEMM_FP32 : in,
					.epilogue = (enum gemm_epilogue)epilogue };
				struct tune tune = tune_of((enum gemm_mode)mode, 30);
				if (gradient && gemm.w_transposed)
					gemm.w_transposed = false; /* the sums of our kernel are of rows */
				struct tune_result result = tuned(&tune, &gemm, 1);
				assert_int_equal(result.wrong, 0);
				assert_int_equal(result.timed, epilogue == GEMM_PLAIN ? 1 : 2);
				gemm_engine_destroy(tune.engine);
			}
}

static void the_result_is_told(void **state)
{
	const struct tune_result result = { .timed = 28,
		.others = 9,
		.wrong = 1,
		.untimed = 2,
		.first = 11,
		.best = 9.9,
		.seconds = 2.34 };
	char text[400];
	assert_string_equal(tune_text(&result, text, sizeof text),
		"tune: 28 products timed in 2.3 s: one run of each takes 9.900 ms, 10.0 % less than the "
		"11.000 ms of the library's first algorithms; 9 have others; 1 that gave other numbers or "
		"none are left out; there was no time or memory for 2");
	assert_string_equal(tune_text(&result, text, 10), "tune: 28 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(the_fastest_is_chosen),
		TEST(what_is_hardly_faster_is_not_chosen),
		TEST(single_runs_do_not_count),
		TEST(what_gives_other_numbers_is_left_out),
		TEST(a_gemm_that_fails_by_all_is_told),
		TEST(a_device_that_fails_is_told),
		TEST(time_has_an_end),
		TEST(memory_has_an_end),
		TEST(choices_are_kept),
		TEST(epilogues_are_timed_against_ours),
		TEST(sums_of_a_bias_are_ours_unless_slower),
		TEST(all_kinds_are_right),
		TEST(the_result_is_told),
#undef TEST
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
