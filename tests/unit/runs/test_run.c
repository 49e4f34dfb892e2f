/* SPDX-License-Identifier: Apache-2.0 */
/* run: one that grows while it is read is, after each piece, what a whole read says. */
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

#include "common/auto.h"
#include "common/io.h"
#include "runs/run.h"
#include "tests/unit/runs/run_folder.h"

static bool same(double a, double b)
{
	return a == b || (isnan(a) && isnan(b));
}

static void same_table(const struct run_table *a, const struct run_table *b)
{
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->width, b->width);
	assert_true(a->time == b->time);
	assert_true(a->samples == b->samples || json_equal(a->samples, b->samples));
	for (size_t row = 0; row < a->count; row++) {
		assert_int_equal(a->steps[row], b->steps[row]);
		for (int c = 0; c < a->width; c++)
			assert_true(
				same(a->columns[c].values[row], run_table_value(b, a->columns[c].name, row)));
	}
}

/* What was read piece by piece is what a new reader sees. */
static void same_as_read(const struct run *run)
{
	struct run whole;
	struct err err;
	if (run_read(folder, &whole, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(run->attempts, whole.attempts);
	same_table(&run->curve, &whole.curve);
	for (size_t n = 0; n < run->attempts; n++) {
		same_table(&run->tables[n], &whole.tables[n]);
		assert_int_equal(run->rows[n].end, whole.rows[n].end);
		assert_int_equal(run->rows[n].last, whole.rows[n].last);
		assert_true(same(run->rows[n].lost, whole.rows[n].lost));
	}
	run_close(&whole);
}

static void update(struct run *run)
{
	struct err err;
	if (run_update(run, &err) < 0)
		fail_msg("%s", err.text);
	same_as_read(run);
}

/* The bytes of a file of the run, and how many of them have been written again. */
struct source {
	char *text;
	size_t size, done;
};

static struct source take(const char *name)
{
	struct source source = { 0 };
	char path[FILES_PATH_SIZE + 64];
	struct err err;
	snprintf(path, sizeof path, "%s/%s", folder, name);
	assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &source.text, &source.size, &err), 0);
	assert_int_equal(unlink(path), 0);
	return source;
}

static void append(struct source *source, const char *name, size_t size)
{
	FILE *file = open_file(name);
	fwrite(source->text + source->done, 1, size, file);
	fclose(file);
	source->done += size;
}

/* Up to and with the next start; the rest of the file after the last one. */
static size_t to_next_start(const struct source *source)
{
	const char *from = source->text + source->done;
	const char *start = strstr(from, "\"start\"");
	return start ? (size_t)(strchr(start, '\n') + 1 - from) : source->size - source->done;
}

static void pieces_make_the_whole(void **state)
{
	static const char *const names[] = { "metrics-0.jsonl", "metrics-1.jsonl", "metrics-2.jsonl" };
	struct run run;
	struct err err;
	unsigned seed = 1;
	(void)state;
	write_run();
	struct source records = take("attempts.jsonl");
	struct source metrics[3];
	for (int n = 0; n < 3; n++)
		metrics[n] = take(names[n]);
	append(&records, "attempts.jsonl", to_next_start(&records));
	assert_int_equal(run_read(folder, &run, &err), 0);
	for (int n = 0; n < 3; n++) {
		while (metrics[n].done < metrics[n].size) {
			const size_t left = metrics[n].size - metrics[n].done, piece = 1 + rand_r(&seed) % 300;
			append(&metrics[n], names[n], piece < left ? piece : left);
			update(&run);
		}
		append(&records, "attempts.jsonl", to_next_start(&records));
		update(&run);
	}
	assert_int_equal(run.curve.count, 20);
	assert_int_equal(run.attempts, 3);
	run_close(&run);
	free(records.text);
	for (int n = 0; n < 3; n++)
		free(metrics[n].text);
}

static void what_an_attempt_logs_last_is_read_with_the_next(void **state)
{
	struct run run;
	struct err err;
	(void)state;
	record("start", 0, 0, -1, "");
	assert_int_equal(run_read(folder, &run, &err), 0);
	steps(0, 1, 5, 1, "");
	record("start", 1, 10, -1, "");
	record("start", 2, 20, -1, "");
	steps(2, 3, 4, 21, "");
	update(&run);
	assert_int_equal(run.curve.count, 4);
	assert_int_equal(run.tables[0].count, 5);
	run_close(&run);
}

/* In the same folder, or in one that was made in its place. */
static void another_run_takes_its_place(void **state)
{
	struct run run;
	struct err err;
	(void)state;
	for (int anew = 0; anew < 2; anew++) {
		write_run();
		assert_int_equal(run_read(folder, &run, &err), 0);
		remove_folder(NULL);
		assert_int_equal(run_update(&run, &err), -1);
		assert_int_equal(mkdir(folder, 0755), 0);
		record("start", 0, 100 * anew, -1, "");
		steps(0, 1, 2, 1, "");
		update(&run);
		assert_int_equal(run.attempts, 1);
		/* Its metrics are written again, and are shorter. */
		struct source gone = take("metrics-0.jsonl");
		free(gone.text);
		steps(0, 1, 1, 5, "");
		update(&run);
		assert_int_equal(run.curve.count, 1);
		run_close(&run);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pieces_make_the_whole, make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(what_an_attempt_logs_last_is_read_with_the_next,
			make_folder, remove_folder),
		cmocka_unit_test_setup_teardown(another_run_takes_its_place, make_folder, remove_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
