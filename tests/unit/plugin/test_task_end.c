/* SPDX-License-Identifier: Apache-2.0 */
/* Which ends of a task bring the job back. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/task_end.h"

#define EXITED(code) ((code) << 8)

static void statuses_are_judged_as_documented(void **state)
{
	assert_int_equal(task_end_judge(EXITED(0)), TASK_FINISHED);
	static const int final[] = { 1, 2, 3, 65, 68, 70, 74, 76, 126, 127, 128, 255 };
	for (size_t i = 0; i < sizeof final / sizeof final[0]; i++)
		assert_int_equal(task_end_judge(EXITED(final[i])), TASK_FINAL);
	assert_int_equal(task_end_judge(EXITED(69)), TASK_REQUEUE);
	assert_int_equal(task_end_judge(EXITED(75)), TASK_REQUEUE);
}

static void every_signal_brings_the_job_back(void **state)
{
	for (int number = 1; number <= 31; number++) {
		enum task_end want = number == SIGKILL || number == SIGTERM ? TASK_KILLED : TASK_REQUEUE;
		assert_int_equal(task_end_judge(number), want);
		assert_int_equal(task_end_judge(number | 0x80), want);        /* with a core file */
		assert_int_equal(task_end_judge(EXITED(128 + number)), want); /* below a shell */
	}
}

/* A job may ask to come back as often as it likes; what comes back for a fault is counted. */
static void all_but_a_request_is_counted(void **state)
{
	assert_false(task_end_is_counted(EXITED(75)));
	assert_true(task_end_is_counted(EXITED(69)));
	for (int number = 1; number <= 31; number++) {
		assert_true(task_end_is_counted(number));
		assert_true(task_end_is_counted(EXITED(128 + number)));
	}
}

static void an_end_is_somebodys_doing(void **state)
{
	static const struct {
		int status;
		enum task_blame want;
	} cases[] = {
		{ EXITED(1), TASK_BLAME_OWN },
		{ EXITED(2), TASK_BLAME_OWN },
		{ EXITED(65), TASK_BLAME_OWN },
		{ EXITED(255), TASK_BLAME_OWN },
		{ SIGSEGV, TASK_BLAME_OWN },
		{ SIGABRT | 0x80, TASK_BLAME_OWN },
		{ EXITED(139), TASK_BLAME_OWN },
		{ EXITED(69), TASK_BLAME_LOST },
		{ EXITED(75), TASK_BLAME_TOLD },
		{ SIGKILL, TASK_BLAME_KILLED },
		{ EXITED(137), TASK_BLAME_KILLED },
		{ SIGTERM, TASK_BLAME_TOLD },
		{ EXITED(143), TASK_BLAME_TOLD },
		{ SIGINT, TASK_BLAME_TOLD },
		{ SIGUSR2, TASK_BLAME_TOLD },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(task_end_blame(cases[i].status), cases[i].want);
}

static void the_user_is_told_in_words(void **state)
{
	char text[100];
	assert_non_null(strstr(task_end_describe(SIGKILL, text, sizeof text), "signal 9"));
	assert_non_null(strstr(task_end_describe(EXITED(139), text, sizeof text), "signal 11"));
	assert_non_null(strstr(task_end_describe(EXITED(3), text, sizeof text), "status 3"));
	assert_non_null(strstr(task_end_describe(EXITED(75), text, sizeof text), "back in the queue"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statuses_are_judged_as_documented),
		cmocka_unit_test(every_signal_brings_the_job_back),
		cmocka_unit_test(all_but_a_request_is_counted),
		cmocka_unit_test(an_end_is_somebodys_doing),
		cmocka_unit_test(the_user_is_told_in_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
