/* SPDX-License-Identifier: Apache-2.0 */
/* What the settings of a site leave to a checkpoint service. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "slurm/hooks.h"

static void slurms_defaults_leave_all_of_the_drain(void **state)
{
	const struct hooks hooks = { .prolog = hooks_timeout(65534), .epilog = hooks_timeout(0) };
	assert_int_equal(hooks.prolog, 0);
	assert_int_equal(hooks.epilog, 0);
	assert_true(hooks_allow_service(&hooks));
	assert_int_equal(hooks_drain(hooks.epilog, HOOKS_EPILOG_SECONDS, 300), 300);
	assert_int_equal(hooks_drain(hooks.epilog, HOOKS_EPILOG_SECONDS, 0), 0);
}

static void a_timeout_bounds_the_drain(void **state)
{
	for (int timeout = 1; timeout < 400; timeout++)
		for (int drain = 0; drain < 400; drain += 7) {
			int given = hooks_drain(timeout, HOOKS_EPILOG_SECONDS, drain);
			assert_true(given <= drain);
			/* All is over before Slurm kills the epilog. */
			assert_true(given < 0 || given + HOOKS_EPILOG_SECONDS <= timeout);
			assert_true(given < 0 || given == drain || given + HOOKS_EPILOG_SECONDS == timeout);
			assert_int_equal(given < 0, timeout < HOOKS_EPILOG_SECONDS);
		}
}

static void a_service_needs_time_to_start_and_to_end(void **state)
{
	struct hooks hooks = { .prolog = HOOKS_PROLOG_SECONDS + 1, .epilog = HOOKS_EPILOG_SECONDS + 1 };
	assert_true(hooks_allow_service(&hooks));
	hooks.prolog--;
	assert_false(hooks_allow_service(&hooks));
	hooks.prolog = 0;
	assert_true(hooks_allow_service(&hooks));
	hooks.epilog--;
	assert_false(hooks_allow_service(&hooks));
	hooks.epilog = 0;
	assert_true(hooks_allow_service(&hooks));
	hooks.serial = true;
	assert_false(hooks_allow_service(&hooks));
	hooks = (struct hooks) { .in_job = true };
	assert_false(hooks_allow_service(&hooks));
}

static void what_is_written_is_read(void **state)
{
	const struct hooks hooks = { .serial = true, .epilog = 60 };
	struct hooks read = { .in_job = true };
	char text[100];
	assert_true(hooks_parse(&read, hooks_print(&hooks, text, sizeof text)));
	assert_true(read.serial && !read.in_job);
	assert_int_equal(read.prolog, 0);
	assert_int_equal(read.epilog, 60);
	static const char *const others[] = { "", "prolog", "prolog 5 epilog 6 in-job",
		"prolog 9 prolog 9 in-job 1 serial 1\n" };
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		read = hooks;
		assert_false(hooks_parse(&read, others[i]));
		assert_true(!read.serial && !read.epilog);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slurms_defaults_leave_all_of_the_drain),
		cmocka_unit_test(a_timeout_bounds_the_drain),
		cmocka_unit_test(a_service_needs_time_to_start_and_to_end),
		cmocka_unit_test(what_is_written_is_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
