/* SPDX-License-Identifier: Apache-2.0 */
/* save_schedule: the words that are understood, Daly's own examples, and what holds for every
 * interval. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/directory/save_schedule.h"

static void words_are_understood(void **state)
{
	static const struct {
		const char *text;
		enum save_schedule_unit unit;
		double every;
	} cases[] = {
		{ "500", SAVE_STEPS, 500 },
		{ "1", SAVE_STEPS, 1 },
		{ "20steps", SAVE_STEPS, 20 },
		{ "90s", SAVE_SECONDS, 90 },
		{ "0.5s", SAVE_SECONDS, 0.5 },
		{ "10m", SAVE_SECONDS, 600 },
		{ "2h", SAVE_SECONDS, 7200 },
		{ "1.5h", SAVE_SECONDS, 5400 },
		{ "auto", SAVE_AUTO, 0 },
		{ "0", SAVE_NEVER, 0 },
		{ "0steps", SAVE_NEVER, 0 },
		{ "0s", SAVE_NEVER, 0 },
		{ "9000000000000000", SAVE_STEPS, 9e15 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct save_schedule schedule;
		struct err err;
		if (save_schedule_parse(cases[i].text, &schedule, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(schedule.unit, cases[i].unit);
		assert_true(schedule.every == cases[i].every);
	}
}

static void other_words_are_refused(void **state)
{
	static const char *const cases[] = { "", "s", ".", "-1", "+1", " 1", "1 s", "1.5", "1.5steps",
		"1..5s", "5d", "5sec", "500 ", "inf", "nan", "1e3", "0x10", "0x10s", "auto1", "AUTO",
		"9000000000000001000", "1e400s" };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct save_schedule schedule;
		struct err err = { 0 };
		if (save_schedule_parse(cases[i], &schedule, &err) == 0)
			fail_msg("accepted \"%s\"", cases[i]);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, "--ckpt-every"));
		assert_non_null(strstr(err.text, cases[i]));
	}
}

/* Minutes, as in the paper. */
static void dalys_examples(void **state)
{
	assert_int_equal(lround(save_schedule_interval(5 * 60, 0, 24 * 3600) / 60), 117);
	assert_int_equal(lround(save_schedule_interval(5 * 60, 0, 6 * 3600) / 60), 57);
	assert_int_equal(lround(save_schedule_interval(5 * 60, 0, 15 * 60) / 6), 91);
	/* Where a save costs more than what is left between interruptions. */
	assert_true(save_schedule_interval(5 * 60, 0, 2 * 60) == 2 * 60);
}

static void intervals_are_sane(void **state)
{
	for (double mean = 1; mean < 1e7; mean *= 3) {
		double before = 0;
		for (double stall = 1e-6; stall < 2 * mean; stall *= 1.7) {
			double interval = save_schedule_interval(stall, 0, mean);
			assert_true(isfinite(interval)
				&& interval > before); /* a dearer save is worth a longer interval */
			assert_true(save_schedule_interval(stall, 0, mean * 1.5)
				> interval); /* and so are rarer interruptions */
			/* Young's first order, from which the higher terms differ little where a save is cheap.
			 */
			if (stall < 1e-4 * mean)
				assert_true(fabs(interval / sqrt(2 * stall * mean) - 1) < 0.01);
			for (double flush = 1e-3; flush < 1e6; flush *= 10) {
				double floored = save_schedule_interval(stall, flush, mean);
				assert_true(floored == (flush > interval ? flush : interval));
			}
			before = interval;
		}
	}
	assert_true(save_schedule_interval(0, 7, 3600) == 7);
}

/* "s" a start, "n" a notice, digits an end with status 0 to 2 or, as 6, 7 and 9, 65, 75 and 69; "l"
 * the late end of another attempt. One event every 100 seconds from 1000 on; the time now is 100
 * seconds after the last. */
static double mean_of(const char *text)
{
	struct attempts_record records[32] = { 0 };
	size_t count = 0;
	int attempt = -1;
	for (; text[count]; count++) {
		struct attempts_record *record = &records[count];
		attempt += text[count] == 's';
		*record = (struct attempts_record) { .event = ATTEMPTS_END,
			.time = 1000 + 100 * (double)count,
			.cluster = "c",
			.job = 7,
			.attempt = attempt };
		switch (text[count]) {
		case 's': record->event = ATTEMPTS_START; break;
		case 'n': record->event = ATTEMPTS_NOTICE; break;
		case 'l':
			record->attempt = attempt - 1;
			record->status = EXIT_LOST;
			break;
		case '6': record->status = EXIT_DATA; break;
		case '7': record->status = EXIT_REQUEUE; break;
		case '9': record->status = EXIT_LOST; break;
		default: record->status = text[count] - '0';
		}
	}
	return save_schedule_mean_time_between(records, count, 1000 + 100 * (double)count);
}

static void interruptions_are_counted(void **state)
{
	const double prior = 4 * 3600;
	assert_true(mean_of("") == prior);
	assert_true(mean_of("s") == prior + 100);
	/* A crash: the attempt counts to the start of the next. */
	assert_true(mean_of("ss") == (prior + 200) / 2);
	assert_true(mean_of("sss") == (prior + 300) / 3);
	/* A notice and its end are one interruption, with or without an end. */
	assert_true(mean_of("sn7s") == (prior + 300) / 2);
	assert_true(mean_of("snss") == (prior + 400) / 3);
	assert_true(mean_of("s9s1s") == (prior + 300) / 3);
	/* The time between attempts is nobody's. */
	assert_true(mean_of("s7") == (prior + 100) / 2);
	/* An end in order, or before the run had begun, interrupts nothing. */
	assert_true(mean_of("s0s2s6s") == prior + 400);
	/* What a node that was cut off writes when it heals is not the end of the attempt that runs. */
	assert_true(mean_of("ssl9") == (prior + 300) / 3);
	assert_true(mean_of("70") == prior);
}

static void the_clock_going_back_costs_nothing(void **state)
{
	const struct attempts_record records[] = { { .event = ATTEMPTS_START, .time = 5000 },
		{ .event = ATTEMPTS_START, .time = 4000 } };
	assert_true(save_schedule_mean_time_between(records, 2, 3000) == 4 * 3600 / 2);
}

static void a_save_is_due(void **state)
{
	static const struct {
		struct save_schedule schedule;
		int64_t step;
		double since, interval;
		int due;
	} cases[] = {
		{ { SAVE_NEVER, 0 }, 100, 1e9, 0, 0 },
		{ { SAVE_STEPS, 20 }, 20, 0, 1e9, 1 },
		{ { SAVE_STEPS, 20 }, 21, 1e9, 0, 0 },
		{ { SAVE_STEPS, 1 }, 7, 0, 1e9, 1 },
		{ { SAVE_SECONDS, 90 }, 1, 89, 0, 0 },
		{ { SAVE_SECONDS, 90 }, 1, 90, 1e9, 1 },
		{ { SAVE_AUTO, 0 }, 1, 89, 90, 0 },
		{ { SAVE_AUTO, 0 }, 1, 91, 90, 1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(save_schedule_due(&cases[i].schedule, cases[i].step, cases[i].since,
							 cases[i].interval),
			cases[i].due);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_understood),
		cmocka_unit_test(other_words_are_refused),
		cmocka_unit_test(dalys_examples),
		cmocka_unit_test(intervals_are_sane),
		cmocka_unit_test(interruptions_are_counted),
		cmocka_unit_test(the_clock_going_back_costs_nothing),
		cmocka_unit_test(a_save_is_due),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
