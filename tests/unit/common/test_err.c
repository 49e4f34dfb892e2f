/* SPDX-License-Identifier: Apache-2.0 */
/* err: text, status and prefix survive being too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/err.h"

static void set_gives_text_and_fault(void **state)
{
	struct err err;
	assert_int_equal(err_set(&err, "open: couldn't open %s: %d", "x", 7), -1);
	assert_string_equal(err.text, "open: couldn't open x: 7");
	assert_int_equal(err.status, EXIT_FAULT);
}

static void prefix_keeps_status(void **state)
{
	struct err err;
	err_fail(&err, EXIT_DATA, "bad");
	assert_int_equal(err_prefix(&err, "manifest %d", 3), -1);
	assert_string_equal(err.text, "manifest 3: bad");
	assert_int_equal(err.status, EXIT_DATA);
}

static void long_text_is_cut_not_overrun(void **state)
{
	struct err err;
	char text[3000];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	err_set(&err, "%s", text);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	err_prefix(&err, "front");
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
	assert_memory_equal(err.text, "front: aaa", 10);
	err_prefix(&err, "%s", text);
	assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void an_error_is_one_line(void **state)
{
	struct err err;
	err_set(&err, "name: %s", "a\nb\t\033[2J\177\xc3\xa4");
	assert_string_equal(err.text, "name: a?b??[2J?\xc3\xa4");
	err_prefix(&err, "c\rd");
	assert_string_equal(err.text, "c?d: name: a?b??[2J?\xc3\xa4");
}

static void null_error_is_allowed(void **state)
{
	assert_int_equal(err_set(NULL, "x"), -1);
	assert_int_equal(err_fail(NULL, EXIT_DATA, "x"), -1);
	assert_int_equal(err_prefix(NULL, "x"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_gives_text_and_fault),
		cmocka_unit_test(prefix_keeps_status),
		cmocka_unit_test(long_text_is_cut_not_overrun),
		cmocka_unit_test(an_error_is_one_line),
		cmocka_unit_test(null_error_is_allowed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
