/* SPDX-License-Identifier: Apache-2.0 */
/* clock: deadlines that hold across signals, and times that people read. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/time.h>
#include <cmocka.h>

#include "common/clock.h"

static void deadlines_pass(void **state)
{
	double before = clock_now();
	struct deadline later = deadline_in(3600);
	assert_false(deadline_passed(later));
	assert_true(deadline_left(later) > 0 && deadline_left(later) <= 3600);
	assert_true(deadline_sleep(later, 0.01));
	assert_true(clock_now() - before >= 0.01);
	before = clock_now();
	struct deadline soon = deadline_in(0.05);
	assert_false(deadline_sleep(soon, 60)); /* not longer than the deadline */
	assert_true(deadline_passed(soon));
	assert_true(deadline_left(soon) == 0);
	assert_true(clock_now() - before >= 0.05 && clock_now() - before < 30);
	assert_false(deadline_sleep(soon, 60));
	assert_true(deadline_passed(deadline_in(0)));
	assert_true(deadline_passed(deadline_in(-1)));
}

static volatile sig_atomic_t alarms;

static void count_alarm(int number)
{
	alarms = alarms + 1;
}

static void sleeps_across_signals(void **state)
{
	struct sigaction action = { .sa_handler = count_alarm };
	struct itimerval every_ms = { { 0, 1000 }, { 0, 1000 } }, off = { { 0, 0 }, { 0, 0 } };
	double before = clock_now();
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every_ms, NULL);
	assert_true(deadline_sleep(deadline_in(60), 0.1));
	setitimer(ITIMER_REAL, &off, NULL);
	assert_true(clock_now() - before >= 0.1);
	assert_true(alarms > 1);
}

static void bounds_a_wait_on_a_condition(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t never;
	deadline_condition(&never);
	struct deadline deadline = deadline_in(0.02);
	struct timespec until = deadline_timespec(deadline);
	assert_true(until.tv_nsec >= 0 && until.tv_nsec < 1000000000);
	pthread_mutex_lock(&lock);
	int rc;
	do
		rc = pthread_cond_timedwait(&never, &lock, &until);
	while (rc == 0);
	pthread_mutex_unlock(&lock);
	assert_int_equal(rc, ETIMEDOUT);
	/* timespec has whole nanoseconds; the double may be one later */
	assert_true(clock_now() >= deadline.at - 1e-6);
	pthread_cond_destroy(&never);
}

static void wall_times_read_as_utc(void **state)
{
	char text[32];
	assert_string_equal(clock_iso8601(0, text, sizeof text), "1970-01-01T00:00:00.000Z");
	assert_string_equal(clock_iso8601(1769862896.7895, text, sizeof text),
		"2026-01-31T12:34:56.789Z");
	assert_string_equal(clock_iso8601(951782399.25, text, sizeof text), "2000-02-28T23:59:59.250Z");
	assert_string_equal(clock_iso8601(951782400, text, sizeof text), "2000-02-29T00:00:00.000Z");
	assert_string_equal(clock_iso8601(1e52, text, sizeof text), "9999-12-31T23:59:59.000Z");
	assert_string_equal(clock_iso8601(-1, text, sizeof text), "1970-01-01T00:00:00.000Z");
	assert_string_equal(clock_iso8601((double)NAN, text, sizeof text), "1970-01-01T00:00:00.000Z");
	assert_true(clock_wall() > 1.7e9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(deadlines_pass),
		cmocka_unit_test(sleeps_across_signals),
		cmocka_unit_test(bounds_a_wait_on_a_condition),
		cmocka_unit_test(wall_times_read_as_utc),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
