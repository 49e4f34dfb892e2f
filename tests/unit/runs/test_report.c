/* SPDX-License-Identifier: Apache-2.0 */
/* run and report: where the time of a run went, whatever interrupted it, and what of it the page
 * shows. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "runs/report.h"
#include "runs/run.h"
#include "tests/unit/runs/run_folder.h"

static struct run read_run(void)
{
	struct run run;
	struct err err;
	if (run_read(folder, &run, &err) < 0)
		fail_msg("%s", err.text);
	return run;
}

static void near(double value, double expected)
{
	if (!(fabs(value - expected) < 1e-6))
		fail_msg("%.9g, not %.9g", value, expected);
}

static void every_second_is_accounted_for(void **state)
{
	(void)state;
	write_run();
	struct run run = read_run();
	const struct run_time time = run_time(&run);
	assert_int_equal(run.attempts, 3);
	near(time.wall, 58.5);
	near(time.training, 20);
	near(time.redone, 4);
	near(time.queued, 47 - 37);
	near(time.waiting, (30 - 19) + (50 - 35) - time.queued);
	assert_true(isnan(run.rows[1].queued));
	near(time.starting, 3 + 1 + 2);
	near(time.saving, 0.75);
	near(time.goodput, 20 / 58.5);
	near(time.training + time.redone + time.queued + time.waiting + time.starting + time.saving
			+ time.other,
		time.wall);
	near(run_starting(&run, 1), 1);
	assert_true(isnan(run_saving(&run, 1)));
	assert_int_equal(run.curve.count, 20);
	run_close(&run);
}

static const json_t *at(const json_t *report, size_t run, const char *key)
{
	return json_object_get(json_array_get(json_object_get(report, "runs"), run), key);
}

static void the_report_says_what_happened(void **state)
{
	(void)state;
	write_run();
	struct run run = read_run();
	json_t *report = report_json(&run, 1, "a title");
	const json_t *attempts = at(report, 0, "attempts"), *first = json_array_get(attempts, 0);
	const json_t *saves = json_object_get(first, "saves"), *series = at(report, 0, "series");
	assert_string_equal(json_string_value(json_object_get(report, "title")), "a title");
	assert_int_equal(json_integer_value(at(report, 0, "steps")), 20);
	assert_int_equal(json_array_size(attempts), 3);
	assert_string_equal(json_string_value(json_object_get(first, "end")), "stopped");
	const json_t *notice = json_array_get(json_object_get(first, "notices"), 0);
	near(json_number_value(json_object_get(notice, "at")), 16.5);
	assert_int_equal(json_array_size(saves), 2);
	near(json_number_value(json_object_get(json_array_get(saves, 1), "at")), 18);
	near(json_number_value(json_object_get(json_array_get(saves, 1), "stall")), 0.25);
	const json_t *second = json_array_get(attempts, 1);
	assert_string_equal(json_string_value(json_object_get(second, "end")), "killed");
	near(json_number_value(json_object_get(second, "lost")), 4);
	assert_true(json_is_null(json_object_get(second, "saving")));
	/* Steps that were done again are there once, at the later time; a key that only the program
	 * knows is there, too. */
	const json_t *loss = json_object_get(series, "loss");
	assert_int_equal(json_array_size(loss), 20);
	near(json_number_value(json_array_get(json_array_get(loss, 14), 1)), 53);
	near(json_number_value(json_array_get(json_array_get(loss, 14), 2)), 1.0 / 15);
	const json_t *accuracy = json_object_get(series, "accuracy");
	assert_int_equal(json_array_size(accuracy), 6);
	assert_null(json_object_get(series, "loss_bits"));
	json_decref(report);
	run_close(&run);
}

/* Of a million values only some can be drawn, but never without the least, the greatest and the
 * last. */
static void long_series_keep_their_extremes(void **state)
{
	char text[200];
	(void)state;
	record("start", 0, 0, -1, "");
	FILE *file = open_file("metrics-0.jsonl");
	for (int step = 1; step <= 30001; step++) {
		const int odd = step == 12345 ? 100 : step == 23456 ? -100 : step % 7;
		snprintf(text, sizeof text, "{\"step\": %d, \"value\": %d}\n", step, odd);
		fputs(text, file);
	}
	fclose(file);
	struct run run = read_run();
	json_t *report = report_json(&run, 1, "");
	const json_t *points = json_object_get(at(report, 0, "series"), "value"), *point;
	double least = 0, greatest = 0, before = 0;
	size_t i;
	assert_in_range(json_array_size(points), REPORT_POINTS / 2, REPORT_POINTS);
	json_array_foreach(points, i, point)
	{
		const double step = json_number_value(json_array_get(point, 0));
		const double value = json_number_value(json_array_get(point, 2));
		assert_true(step > before);
		before = step;
		least = fmin(least, value);
		greatest = fmax(greatest, value);
	}
	assert_true(before == 30001 && least == -100 && greatest == 100);
	json_decref(report);
	run_close(&run);
}

/* Few sample texts are all there, of many some, and always the last. */
static void sample_texts_are_told(void **state)
{
	(void)state;
	record("start", 0, 0, -1, "");
	for (int step = 1, written = 0; step <= 250; step += step == REPORT_SAMPLES ? 1 : 99) {
		FILE *file = open_file("metrics-0.jsonl");
		while (++written < step)
			fprintf(file, "{\"step\": %d, \"sample\": \"text %d\"}\n", written, written);
		fprintf(file, "{\"step\": %d, \"sample\": \"<b>\"}\n", step);
		fclose(file);
		struct run run = read_run();
		json_t *report = report_json(&run, 1, "");
		const json_t *samples = at(report, 0, "samples");
		const size_t count = json_array_size(samples);
		const json_t *last = json_array_get(samples, count - 1);
		if (step <= REPORT_SAMPLES)
			assert_int_equal(count, step);
		assert_in_range(count, 1, REPORT_SAMPLES);
		assert_int_equal(json_integer_value(json_array_get(last, 0)), step);
		assert_string_equal(json_string_value(json_array_get(last, 1)), "<b>");
		json_decref(report);
		run_close(&run);
	}
}

static void runs_are_compared_bit_by_bit(void **state)
{
	(void)state;
	write_run();
	struct run runs[] = { read_run(), read_run() };
	double *bits = NULL, *loss = NULL;
	for (int c = 0; c < runs[1].curve.width; c++) {
		if (strcmp(runs[1].curve.columns[c].name, "loss_bits") == 0)
			bits = runs[1].curve.columns[c].values;
		if (strcmp(runs[1].curve.columns[c].name, "loss") == 0)
			loss = runs[1].curve.columns[c].values;
	}
	for (int different = 0; different < 2; different++) {
		if (different) {
			bits[16] = bytes_of_float(5.0f);
			loss[16] = 5;
		}
		json_t *report = report_json(runs, 2, "");
		const json_t *pair = json_array_get(json_object_get(report, "differences"), 0);
		assert_int_equal(json_integer_value(json_object_get(pair, "steps")), 20);
		assert_int_equal(json_integer_value(json_object_get(pair, "equal")), 20 - different);
		assert_int_equal(json_integer_value(json_object_get(pair, "first")), different ? 17 : -1);
		near(json_number_value(json_object_get(pair, "largest")),
			different ? 5 - (double)(1.0f / 17) : 0);
		assert_int_equal(json_array_size(
							 json_object_get(at(report, 1, "series"), "loss_difference")),
			20);
		json_decref(report);
	}
	run_close(&runs[0]);
	run_close(&runs[1]);
}

static void a_folder_without_attempts_is_refused(void **state)
{
	struct run run;
	struct err err;
	(void)state;
	assert_int_equal(run_read(folder, &run, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "has no record of an attempt"));
	run_close(&run);
	assert_int_equal(run_read("/nonexistent", &run, &err), -1);
	run_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_second_is_accounted_for, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(the_report_says_what_happened, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(long_series_keep_their_extremes, make_folder,
			remove_folder),
		cmocka_unit_test_setup_teardown(sample_texts_are_told, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(runs_are_compared_bit_by_bit, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(a_folder_without_attempts_is_refused, make_folder,
			remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
