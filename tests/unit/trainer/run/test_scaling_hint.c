/* SPDX-License-Identifier: Apache-2.0 */
/* The line about slow scaling: when it comes, and what it advises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/run/scaling_hint.h"

static double communication; /* seconds of each step */

/* The number of the step at which the line comes, 0 for never, of steps of a second in which this
 * rank waits for `late` seconds (`early` in the first three), and another for `least`. */
static int comes_at(const struct scaling_hint_facts *facts, double early, double late, double least,
	char line[SCALING_HINT_LINE])
{
	struct scaling_hint hint = { 0 };
	int at = 0;

	for (int step = 1; step <= 200; step++) {
		const struct scaling_hint_waits waits = { scaling_hint_waited(&hint),
			scaling_hint_waited(&hint) ? 20 * least : 0, "rank 1 on n1", "rank 3 on n2" };

		if (scaling_hint_tell(&hint, facts, &waits, line)) {
			assert_int_equal(at, 0);
			at = step;
		}
		scaling_hint_step(&hint, 1, step <= 3 ? early : late, communication);
	}
	return at;
}

static void test_when(void **state)
{
	const struct scaling_hint_facts facts = { 0 };
	char line[SCALING_HINT_LINE];

	assert_int_equal(comes_at(&facts, 0.9, 0, 0, line), 0);
	assert_int_equal(comes_at(&facts, 0.9, 0.25, 0.25, line), 0);
	assert_int_equal(comes_at(&facts, 0, 0.26, 0.26, line), 24);
	assert_non_null(strstr(line, "26% of a step"));
	assert_non_null(strstr(line, "260 of 1e+03 ms on rank 1 on n1, steps 4 to 23"));
}

/* A rank that computes longer than the others is waited for, and waits least. */
static void test_who(void **state)
{
	struct scaling_hint_facts facts = { 0 };
	char line[SCALING_HINT_LINE];

	assert_int_equal(comes_at(&facts, 0, 0.6, 0.5, line), 24);
	assert_null(strstr(line, "rank 3"));
	assert_int_equal(comes_at(&facts, 0, 0.6, 0.1, line), 24);
	assert_non_null(strstr(line, "rank 3 on n2 computes 500 ms longer than that one"));
	facts.uneven = true; /* it has more to do */
	assert_int_equal(comes_at(&facts, 0, 0.6, 0.1, line), 24);
	assert_null(strstr(line, "rank 3"));
}

static void test_what(void **state)
{
	static const char *const words[] = { "divides --slots", "--reduction=native",
		"; --grad-dtype=bf16" };
	char line[SCALING_HINT_LINE];

	for (int i = 0; i < 8; i++) {
		const struct scaling_hint_facts facts = { .uneven = i & 1, .native = i & 2, .bf16 = i & 4 };
		const bool expected[] = { facts.uneven, !facts.native, facts.native && !facts.bf16 };

		assert_int_equal(comes_at(&facts, 0, 1, 0, line), 24);
		assert_non_null(strstr(line, "--global-batch"));
		assert_true(strlen(line) < SCALING_HINT_LINE - 1);
		for (int w = 0; w < 3; w++)
			assert_int_equal(strstr(line, words[w]) != NULL, expected[w]);
	}
}

/* Where communication takes more than half as long as computing, and only there. */
static void test_zero(void **state)
{
	char line[SCALING_HINT_LINE];

	for (int i = 0; i < 8; i++) {
		const struct scaling_hint_facts facts = { .native = i & 1, .zero = i & 2 };

		communication = i & 4 ? 0.36 : 0.34; /* of steps that compute for 0.7 s */
		assert_int_equal(comes_at(&facts, 0, 0.3, 0.3, line), 24);
		assert_int_equal(strstr(line, "; --zero 1 ") != NULL, i == 4);
		assert_true(strlen(line) < SCALING_HINT_LINE - 1);
	}
	communication = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_when),
		cmocka_unit_test(test_who),
		cmocka_unit_test(test_what),
		cmocka_unit_test(test_zero),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
