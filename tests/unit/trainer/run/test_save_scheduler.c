/* SPDX-License-Identifier: Apache-2.0 */
/* save_scheduler: what is measured decides when auto saves, and the log hears of changes that
 * matter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "trainer/run/save_scheduler.h"

static const struct save_schedule by_steps = { SAVE_STEPS, 10 }, by_seconds = { SAVE_SECONDS, 60 },
								  automatic = { SAVE_AUTO, 0 };

#define MEAN 14400.0

static void steps_and_seconds(void **state)
{
	struct save_scheduler scheduler;
	save_scheduler_begin(&scheduler, &by_steps, 1000);
	assert_false(save_scheduler_due(&scheduler, 9, 1e6));
	assert_true(save_scheduler_due(&scheduler, 10, 1000));
	save_scheduler_begin(&scheduler, &by_seconds, 1000);
	assert_false(save_scheduler_due(&scheduler, 10, 1059));
	assert_true(save_scheduler_due(&scheduler, 11, 1060));
	save_scheduler_save(&scheduler, 1060);
	assert_false(save_scheduler_due(&scheduler, 12, 1119));
	assert_true(save_scheduler_due(&scheduler, 13, 1125));
}

/* The first save of auto comes early, one that never ends is not repeated for minutes, and then the
 * measurements count. */
static void auto_measures_first(void **state)
{
	struct save_scheduler scheduler;
	double now = 1000;
	int64_t step = 1;
	save_scheduler_begin(&scheduler, &automatic, now);
	for (; !save_scheduler_due(&scheduler, step, now); step++, now += 2)
		save_scheduler_step(&scheduler, 2, false);
	assert_true(step > 3 && step < 10);
	save_scheduler_save(&scheduler, now);
	save_scheduler_step(&scheduler, 2.5, true);
	assert_false(save_scheduler_due(&scheduler, ++step, now + 300));
	assert_true(save_scheduler_due(&scheduler, step, now + 600));
	assert_true(save_scheduler_saved(&scheduler, 0.1, 4, MEAN));
	/* The step became half a second longer, which is more than training stood still. */
	double interval = save_schedule_interval(0.5, 4, MEAN);
	assert_true(fabs(scheduler.interval - interval) < 1e-9);
	assert_false(save_scheduler_due(&scheduler, step, now + interval - 0.1));
	assert_true(save_scheduler_due(&scheduler, step, now + interval + 0.1));
}

static void a_slow_disk_is_the_floor(void **state)
{
	struct save_scheduler scheduler;
	save_scheduler_begin(&scheduler, &automatic, 0);
	save_scheduler_step(&scheduler, 1, false);
	save_scheduler_saved(&scheduler, 0.01, 900, MEAN);
	assert_true(scheduler.interval == 900);
}

static void only_changes_that_matter_are_told(void **state)
{
	struct save_scheduler scheduler;
	int told = 0;
	save_scheduler_begin(&scheduler, &automatic, 0);
	save_scheduler_step(&scheduler, 1, false);
	for (int i = 0; i < 50; i++)
		told += save_scheduler_saved(&scheduler, 0.1 + 0.01 * (i % 3), 1, MEAN);
	assert_int_equal(told, 1);
	for (int i = 0; i < 50; i++)
		told += save_scheduler_saved(&scheduler, 0.4, 1, MEAN);
	assert_in_range(told, 2, 5);
	assert_true(fabs(scheduler.interval / save_schedule_interval(0.4, 1, MEAN) - 1) < 0.01);
	save_scheduler_begin(&scheduler, &by_steps, 0);
	assert_false(save_scheduler_saved(&scheduler, 1, 1, MEAN));
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
