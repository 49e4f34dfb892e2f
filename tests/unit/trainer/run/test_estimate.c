/* SPDX-License-Identifier: Apache-2.0 */
/* estimate: sums made by hand, and the message when they are too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/run/estimate.h"

/* GPT-2 124M with 50,304 rows: 124,475,904 elements an arena; bf16, one rank with two arenas of
 * gradients, 4 samples. */
static const struct estimate_facts alone = { .elements = 124475904,
	.gradients = 124475904,
	.arenas = 2,
	.own = 124475904,
	.activations = 1500000000,
	.scratch = 33554432,
	.element_size = 2 };

static void alone_by_hand(void **state)
{
	struct estimate e = estimate_of(&alone);
	assert_true(e.bytes[ESTIMATE_WEIGHTS] == 497903616);
	assert_true(e.bytes[ESTIMATE_COMPUTE] == 248951808);
	assert_true(e.bytes[ESTIMATE_MOMENTS] == 995807232);
	assert_true(e.bytes[ESTIMATE_GRADIENTS] == 995807232);
	assert_true(e.bytes[ESTIMATE_STAGING] == 0);
	assert_true(
		e.sum == 497903616ull + 248951808 + 995807232 + 995807232 + 1500000000ull + 33554432);
}

/* In fp32 the weights are computed with as they are; a fourth of the moments; a split embedding;
 * pieces of others. */
static void shared_by_hand(void **state)
{
	struct estimate_facts facts = alone;
	facts.element_size = 4;
	facts.own = 31118976;
	facts.gradients = 124475904 + 38633472;
	facts.arenas = 1;
	facts.staging = 19660800;
	struct estimate e = estimate_of(&facts);
	assert_true(e.bytes[ESTIMATE_COMPUTE] == 0);
	assert_true(e.bytes[ESTIMATE_MOMENTS] == 248951808);
	assert_true(e.bytes[ESTIMATE_GRADIENTS] == 652437504);
	assert_true(
		e.sum == 497903616ull + 248951808 + 652437504 + 19660800 + 1500000000ull + 33554432);
}

/* More than 4 GiB in one part. */
static void large_models_do_not_wrap(void **state)
{
	const struct estimate_facts facts = { .elements = 1558000000,
		.gradients = 1558000000,
		.arenas = 7,
		.own = 1558000000,
		.element_size = 2 };
	struct estimate e = estimate_of(&facts);
	assert_true(e.bytes[ESTIMATE_GRADIENTS] == 43624000000ull);
	assert_true(e.sum == 6232000000ull + 3116000000ull + 12464000000ull + 43624000000ull);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct err err = { 0 };
	struct estimate e = estimate_of(&alone);
	assert_int_equal(estimate_check(&e, e.sum, 1, &err), 0);
	assert_int_equal(estimate_check(&e, e.sum - 1, 1, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "needs 4272.0 MB"));
	assert_non_null(strstr(err.text, "moments 995.8 MB"));
	assert_non_null(strstr(err.text, "--microbatch"));
	assert_non_null(strstr(err.text, "--recompute block"));
	assert_non_null(strstr(err.text, "--zero 1"));
	assert_null(strstr(err.text, "pieces of other ranks"));
	assert_int_equal(estimate_check(&e, 2 * e.sum, 2, &err), 0);
	assert_int_equal(estimate_check(&e, 2 * e.sum - 2, 2, &err), -1);
	assert_non_null(strstr(err.text, "each of the 2 ranks"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(alone_by_hand),
		cmocka_unit_test(shared_by_hand),
		cmocka_unit_test(large_models_do_not_wrap),
		cmocka_unit_test(what_does_not_fit_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
