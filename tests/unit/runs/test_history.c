/* SPDX-License-Identifier: Apache-2.0 */
/* history: a run of five attempts that ended in five ways, and what of it was done twice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "runs/history.h"

#define START 1767225600.0 /* 2026-01-01T00:00:00Z */

static struct attempts_record record(enum attempts_event event, int attempt, double time,
	int64_t step, const char *why, int status)
{
	struct attempts_record r = { .event = event,
		.attempt = attempt,
		.job = 7,
		.time = START + time,
		.step = step,
		.status = status,
		.world_size = 8 };
	snprintf(r.why, sizeof r.why, "%s", why);
	return r;
}

/* Lines of the steps first to last, one second each, the last at `end`. */
static struct run_table steps_of(int64_t first, int64_t last, int end)
{
	char text[4000] = "";
	struct run_table steps;
	for (int64_t s = first; s <= last; s++)
		snprintf(text + strlen(text), sizeof text - strlen(text),
			"{\"step\": %d, \"milliseconds\": 1000.0, \"time\": "
			"\"2026-01-01T00:%02d:%02d.500Z\"}\n",
			(int)s, (int)(end - (last - s)) / 60, (int)(end - (last - s)) % 60);
	assert_int_equal(run_table_parse(text, strlen(text), &steps, NULL), 0);
	return steps;
}

static void attempts_are_put_together(void **state)
{
	const struct attempts_record records[] = {
		record(ATTEMPTS_START, 0, 0, -1, "", 0),
		record(ATTEMPTS_NOTICE, 0, 20, 12, "SIGTERM", 0),
		record(ATTEMPTS_END, 0, 21, 12, "checkpointed", 75),
		record(ATTEMPTS_START, 1, 30, 12, "", 0), /* killed: no end */
		record(ATTEMPTS_START, 2, 60, 15, "", 0),
		record(ATTEMPTS_END, 2, 70, 22, "a peer was lost", 69),
		record(ATTEMPTS_START, 3, 80, 20, "", 0),
		record(ATTEMPTS_END, 3, 90, 30, "finished", 0),
	};
	struct run_table steps[] = { steps_of(1, 12, 20), steps_of(13, 19, 40), steps_of(16, 22, 69),
		steps_of(21, 30, 89) };
	struct history_row rows[8];
	assert_int_equal(history_rows(records, 8, steps, false, START + 1000, rows), 4);
	assert_int_equal(rows[0].end, HISTORY_STOPPED);
	assert_string_equal(rows[0].notice, "SIGTERM");
	assert_string_equal(rows[0].why, "checkpointed");
	assert_true(rows[0].from == -1 && rows[0].last == 12 && rows[0].seconds == 21
		&& rows[0].lost == 0 && rows[0].waited == 9);
	/* Killed at step 19, of which 16 to 19 were done again; it is known to have run until its last
	 * line. */
	assert_int_equal(rows[1].end, HISTORY_KILLED);
	assert_true(rows[1].last == 19 && rows[1].lost == 4 && rows[1].seconds == 10.5
		&& rows[1].waited == 19.5);
	assert_int_equal(rows[2].end, HISTORY_LOST);
	assert_true(rows[2].last == 22 && rows[2].lost == 2 && rows[2].seconds == 10);
	assert_int_equal(rows[3].end, HISTORY_FINISHED);
	assert_true(isnan(rows[3].lost) && isnan(rows[3].waited));
	const struct history_sum sum = history_sum(rows, 4);
	assert_true(sum.interruptions == 3 && sum.seconds == 51.5 && sum.lost == 6
		&& sum.mean_between == 51.5 / 3);
	for (int i = 0; i < 4; i++)
		run_table_clear(&steps[i]);
}

static void the_last_one_may_still_run(void **state)
{
	const struct attempts_record records[] = { record(ATTEMPTS_START, 0, 0, -1, "", 0),
		record(ATTEMPTS_START, 1, 10, -1, "", 0) };
	struct run_table steps[] = { { 0 }, { 0 } };
	struct history_row rows[2];
	assert_int_equal(history_rows(records, 2, steps, true, START + 25, rows), 2);
	assert_int_equal(rows[0].end, HISTORY_KILLED);
	assert_true(isnan(rows[0].seconds) && isnan(rows[0].waited) && rows[0].lost == 0);
	assert_int_equal(rows[1].end, HISTORY_RUNNING);
	assert_true(rows[1].seconds == 15);
	assert_int_equal(history_sum(rows, 2).interruptions, 1);
	history_rows(records, 2, steps, false, START + 25, rows);
	assert_int_equal(rows[1].end, HISTORY_KILLED);
	assert_int_equal(history_sum(rows, 2).interruptions, 2);
}

/* Attempts outside Slurm are all called 0 of job 0. */
static void equal_numbers_do_not_mix(void **state)
{
	struct attempts_record records[] = { record(ATTEMPTS_START, 0, 0, -1, "", 0),
		record(ATTEMPTS_START, 0, 10, 3, "", 0), record(ATTEMPTS_END, 0, 12, 5, "finished", 0) };
	struct run_table steps[] = { steps_of(1, 4, 8), { 0 } };
	struct history_row rows[2];
	for (int i = 0; i < 3; i++)
		records[i].job = 0;
	assert_int_equal(history_rows(records, 3, steps, false, START, rows), 2);
	assert_int_equal(rows[0].end, HISTORY_KILLED);
	assert_true(rows[0].last == 4 && rows[0].lost == 1);
	assert_int_equal(rows[1].end, HISTORY_FINISHED);
	run_table_clear(&steps[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attempts_are_put_together),
		cmocka_unit_test(the_last_one_may_still_run),
		cmocka_unit_test(equal_numbers_do_not_mix),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
