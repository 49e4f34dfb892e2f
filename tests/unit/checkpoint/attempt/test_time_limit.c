/* SPDX-License-Identifier: Apache-2.0 */
/* The folder gives notice while the job has time for two saves, by what it measured and by what
 * Slurm says then. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/attempt/folder.h"
#include "checkpoint/directory/attempts.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/notice.h"
#include "tests/unit/files.h"

static atomic_int asked;
static double answer; /* seconds from now; 0: Slurm does not answer */

static double ends_now(uint32_t job)
{
	atomic_fetch_add(&asked, 1);
	return answer > 0 ? clock_wall() + answer : 0;
}

/* A folder in a new directory `name`, whose job Slurm ends in that many seconds. */
static struct folder *folder_ending_in(const char *name, double seconds)
{
	struct err err;
	struct ident ident = { .job = 7, .world_size = 1 };
	const struct folder_job job = { .ident = &ident,
		.ends = clock_wall() + seconds,
		.ends_now = ends_now };
	struct folder *folder = folder_open(files_path(name), &job, false, 1, &err);
	if (!folder)
		fail_msg("%s", err.text);
	return folder;
}

/* Until Slurm has been asked once more than `before` times. */
static void wait_until_asked(int before)
{
	struct deadline hang = deadline_in(60);
	while (atomic_load(&asked) == before)
		assert_true(deadline_sleep(hang, 0.01));
}

static void a_limit_that_was_moved_is_none(void **state)
{
	struct folder *folder = folder_ending_in("moved", 5);
	answer = 3600;
	folder_saved(folder, 0.1);
	wait_until_asked(0);
	folder_close(folder, true);
	assert_int_equal(atomic_load(&asked), 1);
	assert_int_equal(notice_signal(), 0);
}

static void nothing_measured_or_far_away_is_none(void **state)
{
	struct folder *unsaved = folder_ending_in("unsaved", 1), *far = folder_ending_in("far", 3600);
	struct folder *near;
	int before = atomic_load(&asked);
	folder_saved(far, 100);
	/* One that is asked for afterwards shows that these two have been looked at. */
	near = folder_ending_in("near", 5);
	answer = 3600;
	folder_saved(near, 0.1);
	wait_until_asked(before);
	deadline_sleep(deadline_in(1), 0.5);
	assert_int_equal(atomic_load(&asked), before + 1);
	assert_int_equal(notice_signal(), 0);
	folder_close(unsaved, true), folder_close(far, true), folder_close(near, true);
}

/* Of the last four saves none would take too long. The five come between two looks of the folder's
 * thread. */
static void one_long_save_does_not_count_for_ever(void **state)
{
	struct folder *folder = folder_ending_in("stalled", 60);
	int before = atomic_load(&asked);
	answer = 0;
	folder_saved(folder, 40);
	for (int i = 0; i < 4; i++)
		folder_saved(folder, 1);
	deadline_sleep(deadline_in(1), 0.6);
	assert_int_equal(atomic_load(&asked), before);
	assert_int_equal(notice_signal(), 0);
	folder_close(folder, true);
}

/* The last, since a notice stays: twice 100 s are more than the 150 that are left, also where Slurm
 * doesn't answer. */
static void what_leaves_no_time_for_two_saves_is_one(void **state)
{
	struct folder *folder = folder_ending_in("late", 150);
	struct deadline hang = deadline_in(60);
	AUTO_FREE struct attempts_record *found = NULL;
	size_t count;
	struct err err;
	answer = 0;
	folder_saved(folder, 100);
	while (notice_signal() == 0)
		assert_true(deadline_sleep(hang, 0.01));
	assert_int_equal(notice_signal(), NOTICE_TIME_LIMIT);
	assert_string_equal(notice_name(notice_signal()), "the time limit");
	assert_int_equal(folder_notice(folder, notice_signal(), &err), 0);
	assert_int_equal(attempts_read(folder_dir(folder), &found, &count, &err), 0);
	assert_int_equal(count, 2);
	assert_int_equal(found[1].event, ATTEMPTS_NOTICE);
	assert_string_equal(found[1].why, "the time limit");
	folder_close(folder, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_limit_that_was_moved_is_none),
		cmocka_unit_test(nothing_measured_or_far_away_is_none),
		cmocka_unit_test(one_long_save_does_not_count_for_ever),
		cmocka_unit_test(what_leaves_no_time_for_two_saves_is_one),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
