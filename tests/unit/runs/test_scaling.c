/* SPDX-License-Identifier: Apache-2.0 */
/* scaling: medians of the steps that count, held against the first run; files that can't be used
 * are named. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runs/scaling.h"
#include "tests/unit/files.h"
#include "trainer/run/metrics.h"

struct folder_at {
	char path[FILES_PATH_SIZE];
	int fd;
};

static struct folder_at make(void)
{
	struct folder_at folder;
	assert_int_equal(files_make_folder(folder.path), 0);
	folder.fd = open(folder.path, O_RDONLY | O_DIRECTORY);
	assert_true(folder.fd >= 0);
	return folder;
}

static void discard(struct folder_at *folder, int attempts)
{
	char name[40];
	for (int i = 0; i < attempts; i++) {
		snprintf(name, sizeof name, "metrics-%d.jsonl", i);
		assert_int_equal(unlinkat(folder->fd, name, 0), 0);
	}
	close(folder->fd);
	assert_int_equal(rmdir(folder->path), 0);
}

/* Steps of about `milliseconds`; every seventh is ten times as long, as on a busy machine, and so
 * are the first three. */
static void attempt(const struct folder_at *folder, int number, int ranks, int steps,
	double milliseconds)
{
	struct err err;
	struct metrics *metrics = metrics_open(folder->fd, number, &err);
	assert_non_null(metrics);
	for (int step = 1; step <= steps; step++) {
		double ms = milliseconds * (step <= 3 || step % 7 == 0 ? 10 : 1) + step % 2 * 0.2;
		const struct metrics_step line = { .step = (uint64_t)step,
			.loss = 1,
			.ranks = ranks,
			.milliseconds = ms,
			.tokens_per_second = 1e6 / ms,
			.communication = ms * 0.4e-3,
			.exposed = ms * (step % 7 ? 0.1e-3 : 0.9e-3) };
		assert_int_equal(metrics_step(metrics, &line, &err), 0);
		assert_int_equal(metrics_validation(metrics, line.step, 1, &err), 0);
	}
	metrics_close(metrics);
}

static void medians_of_the_last_attempt(void **state)
{
	struct folder_at folder = make();
	struct scaling_run run;
	struct err err;
	attempt(&folder, 0, 8, 40, 500);
	attempt(&folder, 1, 4, 43, 10);
	assert_int_equal(scaling_read(folder.fd, 3, &run, &err), 0);
	assert_int_equal(run.ranks, 4);
	assert_int_equal(run.steps, 40);
	assert_true(run.milliseconds >= 10 && run.milliseconds <= 10.2 && fabs(run.rate - 1e5) < 2001);
	assert_true(fabs(run.communication - 0.4 * run.milliseconds) < 0.1
		&& fabs(run.exposed - 0.1 * run.milliseconds) < 0.1);
	assert_true(fabs(run.hidden - 0.3 * run.milliseconds) < 0.1);
	discard(&folder, 2);
}

static void runs_are_held_against_the_first(void **state)
{
	const struct scaling_run runs[] = {
		{ .ranks = 2, .steps = 20, .rate = 1000, .milliseconds = 80 },
		{ .ranks = 4,
			.steps = 20,
			.rate = 1500,
			.milliseconds = 50,
			.communication = 20,
			.hidden = 15,
			.exposed = 5 },
		{ .ranks = 5, .steps = 20, .rate = 2750, .milliseconds = 30 },
	};
	char *text;
	size_t size;
	assert_true(scaling_speedup(runs, 0) == 1 && scaling_efficiency(runs, 0) == 1);
	assert_true(scaling_speedup(runs, 1) == 1.5 && scaling_efficiency(runs, 1) == 0.75);
	assert_true(fabs(scaling_efficiency(runs, 2) - 1.1) < 1e-12);
	FILE *out = open_memstream(&text, &size);
	scaling_print(runs, 3, out);
	scaling_bars(runs, 3, out);
	scaling_script(runs, 3, out);
	fclose(out);
	assert_non_null(strstr(text,
		"\n    4      1500     1.50       75.0%     50.0             20.00     15.00      5.00\n"));
	assert_non_null(
		strstr(text, "\n    4  ######################################............  75.0%\n"));
	assert_non_null(
		strstr(text, "\n    5  ##################################################  110.0%\n"));
	assert_non_null(
		strstr(text, "$runs <<END\n2 1 1 100.0\n4 1.5 2 75.0\n5 2.75 2.5 110.0\nEND\n"));
	free(text);
	json_t *json = scaling_json(runs, 3);
	const json_t *entry = json_array_get(json_object_get(json, "runs"), 1);
	assert_int_equal(json_array_size(json_object_get(json, "runs")), 3);
	assert_true(json_number_value(json_object_get(entry, "efficiency")) == 0.75);
	assert_true(json_number_value(json_object_get(entry, "hidden_milliseconds")) == 15);
	json_decref(json);
}

static void what_is_too_short_or_old_is_named(void **state)
{
	struct folder_at folder = make();
	struct scaling_run run;
	struct err err = { 0 };
	assert_int_equal(scaling_read(folder.fd, 0, &run, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	attempt(&folder, 0, 2, 10, 5);
	assert_int_equal(scaling_read(folder.fd, 10, &run, &err), -1);
	assert_non_null(strstr(err.text, "metrics-0.jsonl has 10 steps with all numbers"));
	assert_int_equal(err.status, EXIT_DATA);
	assert_int_equal(scaling_read(folder.fd, 9, &run, &err), 0);
	/* A line as versions before this one wrote it, and a torn one. */
	int fd = openat(folder.fd, "metrics-1.jsonl", O_WRONLY | O_CREAT, 0644);
	static const char old[] = "{\"step\": 1, \"loss\": 1, \"loss_bits\": \"3f800000\", "
							  "\"tokens_per_second\": 5}\n{\"step\": 2, \"lo";
	assert_int_equal(write(fd, old, sizeof old - 1), sizeof old - 1);
	close(fd);
	assert_int_equal(scaling_read(folder.fd, 0, &run, &err), -1);
	assert_non_null(strstr(err.text, "metrics-1.jsonl has 0 steps"));
	discard(&folder, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(medians_of_the_last_attempt),
		cmocka_unit_test(runs_are_held_against_the_first),
		cmocka_unit_test(what_is_too_short_or_old_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
