/* SPDX-License-Identifier: Apache-2.0 */
/* ckptd_parts: which save of several parts is over, and how. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/service/ckptd_parts.h"

static void tell(struct ckptd_parts *parts, int64_t step, int part, const char *text, double now)
{
	const struct err fault = { EXIT_LOST, "it broke" };
	assert_int_equal(ckptd_parts_tell(parts, step, part, text ? strdup(text) : NULL,
						 text ? strlen(text) : 0, &fault, now),
		0);
}

/* The next save that is over has to be this one. */
static void expect(struct ckptd_parts *parts, double now, enum ckptd_parts_verdict verdict,
	int64_t step)
{
	struct ckptd_parts_step *over;
	assert_int_equal(ckptd_parts_over(parts, now, &over), verdict);
	if (verdict == PARTS_WAIT)
		return;
	assert_int_equal(over->step, step);
	ckptd_parts_free(parts, over);
}

static void a_save_is_complete_when_all_parts_are_told(void **state)
{
	/* In every order of three parts. */
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 },
		{ 2, 0, 1 }, { 2, 1, 0 } };
	for (int o = 0; o < 6; o++) {
		struct ckptd_parts *parts = ckptd_parts_create(3, 10);
		struct ckptd_parts_step *over;
		for (int i = 0; i < 3; i++) {
			expect(parts, 1e9, PARTS_WAIT, 0);
			tell(parts, 7, orders[o][i], "abc" + orders[o][i], 1e9);
			tell(parts, 7, orders[o][i], "again", 1e9);
		}
		assert_int_equal(ckptd_parts_over(parts, 1e9, &over), PARTS_COMPLETE);
		for (int i = 0; i < 3; i++) {
			assert_string_equal(over->texts[i], "abc" + i);
			assert_int_equal(over->sizes[i], 3 - i);
		}
		assert_true(over->own && !over->own_failed);
		ckptd_parts_free(parts, over);
		expect(parts, 1e9, PARTS_WAIT, 0);
		ckptd_parts_destroy(parts);
	}
}

static void saves_fail_late_overtaken_or_by_a_part(void **state)
{
	struct ckptd_parts *parts = ckptd_parts_create(3, 10);
	char missing[40];
	/* A part failed: over when all are told. */
	tell(parts, 1, 1, NULL, 0);
	tell(parts, 1, 0, "a", 1);
	expect(parts, 10.9, PARTS_WAIT, 0);
	tell(parts, 1, 2, "c", 2);
	expect(parts, 3, PARTS_FAILED, 1);
	/* Not told in time, which begins with part 0's own. */
	tell(parts, 2, 1, "b", 3);
	assert_true(ckptd_parts_next(parts) == 0);
	expect(parts, 1e9, PARTS_WAIT, 0);
	assert_int_equal(ckptd_parts_begin(parts, 2, 50), 0);
	expect(parts, 1e9, PARTS_WAIT, 0);
	tell(parts, 2, 0, "a", 100);
	assert_true(ckptd_parts_next(parts) == 110);
	assert_string_equal(ckptd_parts_missing(parts, ckptd_parts_first(parts), missing,
							sizeof missing),
		"3");
	expect(parts, 109, PARTS_WAIT, 0);
	expect(parts, 110, PARTS_LATE, 2);
	/* Overtaken by a later one that is complete, and in their order. */
	tell(parts, 5, 2, "c", 200);
	tell(parts, 4, 0, "a", 200);
	tell(parts, 5, 1, "b", 200);
	tell(parts, 3, 0, NULL, 200);
	expect(parts, 201, PARTS_WAIT, 0);
	tell(parts, 5, 0, "a", 201);
	expect(parts, 202, PARTS_OVERTAKEN, 3);
	expect(parts, 202, PARTS_OVERTAKEN, 4);
	expect(parts, 202, PARTS_COMPLETE, 5);
	/* Who has left fails what he did not tell, also what begins later, and nothing that he told. */
	struct ckptd_parts *left = ckptd_parts_create(2, 10);
	tell(left, 4, 1, "b", 0);
	tell(left, 5, 0, "a", 0);
	ckptd_parts_left(left, 1, 5);
	expect(left, 1, PARTS_FAILED, 5);
	tell(left, 6, 0, "a", 1);
	expect(left, 1, PARTS_FAILED, 6);
	expect(left, 1, PARTS_WAIT, 0);
	tell(left, 4, 0, "a", 1);
	expect(left, 1, PARTS_COMPLETE, 4);
	/* Until he is heard of again. */
	tell(left, 7, 1, "b", 2);
	tell(left, 7, 0, "a", 2);
	expect(left, 2, PARTS_COMPLETE, 7);
	ckptd_parts_destroy(left);
	/* In a hurry everything is late sooner, what comes later too. */
	tell(parts, 6, 0, "a", 300);
	tell(parts, 7, 1, "b", 300);
	ckptd_parts_hurry(parts, 302);
	tell(parts, 8, 0, "a", 301);
	expect(parts, 301, PARTS_WAIT, 0);
	expect(parts, 302, PARTS_LATE, 6);
	expect(parts, 302, PARTS_LATE, 7);
	expect(parts, 302, PARTS_LATE, 8);
	ckptd_parts_destroy(parts);
}

static void what_is_kept_is_bounded(void **state)
{
	struct ckptd_parts *parts = ckptd_parts_create(10, 10);
	const struct err fault = { EXIT_LOST, "it broke" };
	char missing[60];
	int64_t step = 0;
	while (ckptd_parts_tell(parts, step, 1, NULL, 0, &fault, 0) == 0)
		step++;
	assert_true(step > 10 && step < 1000);
	assert_int_equal(ckptd_parts_begin(parts, step, 0), -1);
	assert_string_equal(ckptd_parts_missing(parts, ckptd_parts_first(parts), missing,
							sizeof missing),
		"1, 3, 4, 5 and 5 others");
	ckptd_parts_destroy(parts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_save_is_complete_when_all_parts_are_told),
		cmocka_unit_test(saves_fail_late_overtaken_or_by_a_part),
		cmocka_unit_test(what_is_kept_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
