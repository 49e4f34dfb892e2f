/* SPDX-License-Identifier: Apache-2.0 */
/* The line about slow scaling: when it comes, and what it advises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/advice.h"

/* The number of the step at which the line comes, 0 for never, of steps of a second. */
static int comes_at(const struct advice_facts *facts, double early, double late, char line[500])
{
	struct advice advice = { 0 };
	int at = 0;

	for (int step = 1; step <= 200; step++)
		if (advice_step(&advice, facts, 1, step <= 3 ? early : late, line)) {
			assert_int_equal(at, 0);
			at = step;
		}
	return at;
}

static void test_when(void **state)
{
	const struct advice_facts facts = { 0 };
	char line[500];

	assert_int_equal(comes_at(&facts, 0.9, 0, line), 0);
	assert_int_equal(comes_at(&facts, 0.9, 0.25, line), 0);
	assert_int_equal(comes_at(&facts, 0, 0.26, line), 23);
	assert_non_null(strstr(line, "26% of a step"));
	assert_non_null(strstr(line, "260 of 1e+03 ms, steps 4 to 23"));
}

static void test_what(void **state)
{
	static const char *const words[] = { "divides --slots", "--split-embedding", "--reduction=native", "; --grad-dtype=bf16" };
	char line[500];

	for (int i = 0; i < 32; i++) {
		const struct advice_facts facts = { i & 1, i & 2, i & 4, i & 8, i & 16 };
		const bool expected[] = { facts.uneven, facts.tied && !facts.split, !facts.native, facts.native && !facts.bf16 };

		assert_int_equal(comes_at(&facts, 0, 1, line), 23);
		assert_non_null(strstr(line, "--global-batch"));
		assert_true(strlen(line) < 499);
		for (int w = 0; w < 4; w++)
			assert_int_equal(strstr(line, words[w]) != NULL, expected[w]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_when),
		cmocka_unit_test(test_what),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
