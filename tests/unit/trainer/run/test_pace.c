/* SPDX-License-Identifier: Apache-2.0 */
/* pace: what is measured decides when auto saves, and the log hears of changes that matter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trainer/run/pace.h"

static const struct cadence by_steps = { CADENCE_STEPS, 10 }, by_seconds = { CADENCE_SECONDS, 60 },
	automatic = { CADENCE_AUTO, 0 };

#define MEAN 14400.0

static void steps_and_seconds(void **state)
{
	struct pace pace;
	pace_begin(&pace, &by_steps, 1000);
	assert_false(pace_due(&pace, 9, 1e6));
	assert_true(pace_due(&pace, 10, 1000));
	pace_begin(&pace, &by_seconds, 1000);
	assert_false(pace_due(&pace, 10, 1059));
	assert_true(pace_due(&pace, 11, 1060));
	pace_save(&pace, 1060);
	assert_false(pace_due(&pace, 12, 1119));
	assert_true(pace_due(&pace, 13, 1125));
}

/* The first save of auto comes early, one that never ends is not repeated for minutes, and then the measurements count. */
static void auto_measures_first(void **state)
{
	struct pace pace;
	double now = 1000;
	int64_t step = 1;
	pace_begin(&pace, &automatic, now);
	for (; !pace_due(&pace, step, now); step++, now += 2)
		pace_step(&pace, 2, false);
	assert_true(step > 3 && step < 10);
	pace_save(&pace, now);
	pace_step(&pace, 2.5, true);
	assert_false(pace_due(&pace, ++step, now + 300));
	assert_true(pace_due(&pace, step, now + 600));
	assert_true(pace_saved(&pace, 0.1, 4, MEAN));
	/* The step became half a second longer, which is more than training stood still. */
	double interval = cadence_interval(0.5, 4, MEAN);
	assert_true(fabs(pace.interval - interval) < 1e-9);
	assert_false(pace_due(&pace, step, now + interval - 0.1));
	assert_true(pace_due(&pace, step, now + interval + 0.1));
}

static void a_slow_disk_is_the_floor(void **state)
{
	struct pace pace;
	pace_begin(&pace, &automatic, 0);
	pace_step(&pace, 1, false);
	pace_saved(&pace, 0.01, 900, MEAN);
	assert_true(pace.interval == 900);
}

static void only_changes_that_matter_are_told(void **state)
{
	struct pace pace;
	int told = 0;
	pace_begin(&pace, &automatic, 0);
	pace_step(&pace, 1, false);
	for (int i = 0; i < 50; i++)
		told += pace_saved(&pace, 0.1 + 0.01 * (i % 3), 1, MEAN);
	assert_int_equal(told, 1);
	for (int i = 0; i < 50; i++)
		told += pace_saved(&pace, 0.4, 1, MEAN);
	assert_in_range(told, 2, 5);
	assert_true(fabs(pace.interval / cadence_interval(0.4, 1, MEAN) - 1) < 0.01);
	pace_begin(&pace, &by_steps, 0);
	assert_false(pace_saved(&pace, 1, 1, MEAN));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(steps_and_seconds),
		cmocka_unit_test(auto_measures_first),
		cmocka_unit_test(a_slow_disk_is_the_floor),
		cmocka_unit_test(only_changes_that_matter_are_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
