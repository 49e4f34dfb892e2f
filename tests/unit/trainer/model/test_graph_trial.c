/* SPDX-License-Identifier: Apache-2.0 */
/* The choice between steps with graphs and without: by the shortest of each, without those in which
 * they warm up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trainer/model/graph_trial.h"

#define EACH (GRAPH_TRIAL_SKIPPED + GRAPH_TRIAL_TIMED)

/* Steps that take so long without, and with; the first of each kind `slow`. */
static struct graph_trial trial_of(double without, double with, double slow)
{
	struct graph_trial trial = { 0 };
	for (int i = 0; i < 2 * EACH; i++) {
		assert_int_equal(graph_trial_uses(&trial), i >= EACH);
		double seconds = i % EACH < GRAPH_TRIAL_SKIPPED ? slow
			: i % EACH == EACH - 1                      ? 9
			: i < EACH                                  ? without
														: with;
		assert_int_equal(graph_trial_step(&trial, seconds), i == 2 * EACH - 1);
	}
	return trial;
}

static void the_shorter_is_used(void **state)
{
	struct graph_trial trial = trial_of(2, 1, 5);
	assert_true(graph_trial_uses(&trial));
	trial = trial_of(1, 2, 5);
	assert_false(graph_trial_uses(&trial));
	trial = trial_of(2, 1, 0.1); /* what is left out counts nowhere */
	assert_true(graph_trial_uses(&trial));
	trial = trial_of(1, 1, 5); /* nothing is gained */
	assert_false(graph_trial_uses(&trial));
}

static void the_choice_stays(void **state)
{
	struct graph_trial trial = trial_of(2, 1, 5);
	for (int i = 0; i < 20; i++) {
		assert_false(graph_trial_step(&trial, i % 2 ? 0.001 : 100));
		assert_true(graph_trial_uses(&trial));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_shorter_is_used),
		cmocka_unit_test(the_choice_stays),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
