/* SPDX-License-Identifier: Apache-2.0 */
/* token_choice: which tokens may be drawn, as often as they are probable, and the same ones for the
 * same seed. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/generate/token_choice.h"

#define TOKENS 6
#define DRAWS 40000

/* Probabilities 0.4, 0.1, 0.2, 0.05, 0.05, 0.2 at temperature 1. */
static const double probabilities[TOKENS] = { 0.4, 0.1, 0.2, 0.05, 0.05, 0.2 };

static void draw(const struct token_choice *choice, const float *logits, double *often)
{
	int32_t order[TOKENS];
	memset(often, 0, TOKENS * sizeof *often);
	for (uint64_t i = 0; i < DRAWS; i++)
		often[token_choose(choice, logits, TOKENS, 3, i, order)] += 1.0 / DRAWS;
}

static void expect(const struct token_choice *choice, const double *expected)
{
	float logits[TOKENS];
	double often[TOKENS];
	for (int i = 0; i < TOKENS; i++)
		logits[i] = (float)log(probabilities[i]) + 5;
	draw(choice, logits, often);
	for (int i = 0; i < TOKENS; i++)
		/* six standard deviations */
		if (fabs(often[i] - expected[i]) > 1e-9 + 6 * sqrt(expected[i] * (1 - expected[i]) / DRAWS))
			fail_msg("token %d: %g of the draws, not %g", i, often[i], expected[i]);
}

static void draws_follow_the_probabilities(void **state)
{
	double squared[TOKENS], sum = 0;
	(void)state;
	expect(&(struct token_choice) { 1, 0, 1, 7 }, probabilities);
	expect(&(struct token_choice) { 1, 100, 1, 8 }, probabilities);
	for (int i = 0; i < TOKENS; i++)
		sum += squared[i] = probabilities[i] * probabilities[i];
	for (int i = 0; i < TOKENS; i++)
		squared[i] /= sum;
	expect(&(struct token_choice) { 0.5, 0, 1, 9 }, squared);
}

static void limits_leave_the_most_probable(void **state)
{
	static const double first[] = { 1, 0, 0, 0, 0, 0 }, three[] = { 0.5, 0, 0.25, 0, 0, 0.25 },
						two[] = { 2.0 / 3, 0, 1.0 / 3, 0, 0, 0 },
						four[] = { 0.4 / 0.9, 0.1 / 0.9, 0.2 / 0.9, 0, 0, 0.2 / 0.9 };
	(void)state;
	expect(&(struct token_choice) { 0, 0, 1, 7 }, first);
	expect(&(struct token_choice) { 1, 1, 1, 7 }, first);
	expect(&(struct token_choice) { 1, 0, 0, 7 }, first);
	expect(&(struct token_choice) { 1, 3, 1, 7 }, three);
	expect(&(struct token_choice) { 1, 2, 1, 7 }, two); /* of the two with 0.2 the lower one */
	expect(&(struct token_choice) { 1, 0, 0.5, 7 }, two);
	expect(&(struct token_choice) { 1, 0, 0.79, 7 }, three);
	expect(&(struct token_choice) { 1, 0, 0.81, 7 }, four);
	/* 0.5 of what the three have together. */
	expect(&(struct token_choice) { 1, 3, 0.6, 7 }, two);
	expect(&(struct token_choice) { 1, 4, 0.999, 7 }, four);
}

static void odd_logits_are_no_trap(void **state)
{
	const struct token_choice choices[] = { { 1, 0, 1, 7 }, { 1, 3, 0.9, 7 }, { 0, 0, 1, 7 } };
	const float bad[] = { NAN, NAN, NAN }, some[] = { NAN, -INFINITY, 2, NAN },
				great[] = { 1, INFINITY, 3 }, far[] = { -1e30f, 1e30f, 0 };
	int32_t order[4];
	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(token_choose(&choices[i], bad, 3, 0, 0, order), -1);
		assert_int_equal(token_choose(&choices[i], some, 4, 0, 0, order), 2);
		assert_int_equal(token_choose(&choices[i], great, 3, 0, 0, order), 1);
		assert_int_equal(token_choose(&choices[i], far, 3, 0, 0, order), 1);
	}
}

static void the_seed_the_sequence_and_the_position_decide(void **state)
{
	float logits[64] = { 0 };
	int32_t order[64];
	int equal[3] = { 0 };
	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		const struct token_choice choice = { 1, 0, 1, 7 }, other = { 1, 0, 1, 7 + (1ull << 40) };
		const int32_t token = token_choose(&choice, logits, 64, 0, i, order);
		assert_int_equal(token_choose(&choice, logits, 64, 0, i, order), token);
		equal[0] += token_choose(&other, logits, 64, 0, i, order) == token;
		equal[1] += token_choose(&choice, logits, 64, 1, i, order) == token;
		equal[2] += token_choose(&choice, logits, 64, 0, i + (1ull << 40), order) == token;
	}
	for (int i = 0; i < 3; i++)
		assert_in_range(equal[i], 0, 60); /* of 1000 about 16 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(draws_follow_the_probabilities),
		cmocka_unit_test(limits_leave_the_most_probable),
		cmocka_unit_test(odd_logits_are_no_trap),
		cmocka_unit_test(the_seed_the_sequence_and_the_position_decide),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
