/* SPDX-License-Identifier: Apache-2.0 */
/* metrics and curve: what attempts write, merged, is the curve of a run without interruption. */
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

#include "common/io.h"
#include "runs/curve.h"
#include "tests/unit/files.h"
#include "trainer/run/metrics.h"

static int make_folder(void)
{
	char path[FILES_PATH_SIZE];
	assert_int_equal(files_make_folder(path), 0);
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	/* Files in it stay reachable by the descriptor; the names go at the end of each test. */
	return fd;
}

static void remove_folder(int fd, int attempts)
{
	char name[64], link[64], path[200];
	for (int i = 0; i < attempts; i++) {
		snprintf(name, sizeof name, "metrics-%d.jsonl", i);
		unlinkat(fd, name, 0);
	}
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	assert_true(n > 0);
	path[n] = '\0';
	close(fd);
	assert_int_equal(rmdir(path), 0);
}

static float loss_at(uint64_t step)
{
	return (float)(3.0 / (double)step) + 0.1f;
}

static void attempt(int dirfd, int number, uint64_t first, uint64_t last)
{
	struct err err;
	struct metrics *metrics = metrics_open(dirfd, number, &err);
	assert_non_null(metrics);
	if (first > 1
		&& (first - 1) % 5 == 0) /* a resume does the validation of its checkpoint's step again */
		assert_int_equal(metrics_validation(metrics, first - 1, loss_at(first - 1) + 1, &err), 0);
	for (uint64_t step = first; step <= last; step++) {
		struct metrics_step line = { .step = step,
			.loss = loss_at(step),
			.norm = sqrtf((float)step),
			.milliseconds = number * 17 + 1 };
		assert_int_equal(metrics_step(metrics, &line, &err), 0);
		/* Lines about saves come late and are no points of the curve. */
		const struct save_result saved = { .step = (int64_t)step - 3,
			.stall = 0.5,
			.seconds = 1e-9,
			.bytes = INT64_MAX };
		if (step % 4 == 0 && number != 0)
			assert_int_equal(metrics_checkpoint(metrics, &saved, &err), 0);
		if (step % 5 == 0)
			assert_int_equal(metrics_validation(metrics, step, loss_at(step) + 1, &err), 0);
		/* Nor are texts, with whatever they have in them. */
		if (step % 7 == 0)
			assert_int_equal(metrics_sample(metrics, step, "\"\\n }, \"step\": 9é\n", &err), 0);
	}
	assert_int_equal(metrics_sync(metrics, &err), 0);
	metrics_close(metrics);
}

static char *curve_text(int dirfd)
{
	struct run_table curve;
	struct err err;
	char *text;
	size_t size, attempts;
	if (curve_read(dirfd, &curve, &attempts, &err) < 0)
		fail_msg("%s", err.text);
	FILE *out = open_memstream(&text, &size);
	curve_print(&curve, out);
	fclose(out);
	run_table_clear(&curve);
	return text;
}

static void tear(int dirfd, int number, const char *bytes, size_t size)
{
	char name[64];
	snprintf(name, sizeof name, "metrics-%d.jsonl", number);
	int fd = openat(dirfd, name, O_WRONLY | O_APPEND);
	assert_true(fd >= 0);
	assert_int_equal(io_write_full(fd, bytes, size), 0);
	close(fd);
}

static void merged_curve_is_the_undisturbed_one(void **state)
{
	int whole = make_folder(), killed = make_folder();
	attempt(whole, 0, 1, 40);
	attempt(killed, 0, 1, 13);
	tear(killed, 0, "{\"step\": 14, \"loss", 19);
	attempt(killed, 1, 11, 27); /* from the checkpoint of step 10, a validation point */
	tear(killed, 1, "\0\0\0\0\n", 5);
	attempt(killed, 2, 9, 8);  /* died before its first step */
	attempt(killed, 3, 9, 31); /* the newer checkpoints were damaged */
	attempt(killed, 4, 31, 40);
	char *a = curve_text(whole), *b = curve_text(killed);
	assert_string_equal(a, b);
	assert_non_null(strstr(a, "40 "));
	free(a);
	free(b);
	remove_folder(whole, 1);
	remove_folder(killed, 5);
}

static void values_keep_their_bits(void **state)
{
	int dir = make_folder();
	struct err err;
	struct metrics *metrics = metrics_open(dir, 0, &err);
	struct metrics_step line = { .step = 1, .loss = NAN, .norm = INFINITY, .skipped = true };
	assert_int_equal(metrics_step(metrics, &line, &err), 0);
	line = (struct metrics_step) { .step = 2, .loss = 0.1f, .norm = 1.0f };
	assert_int_equal(metrics_step(metrics, &line, &err), 0);
	metrics_close(metrics);
	char *text = curve_text(dir);
	char *second = strchr(text, '\n') + 1;
	assert_memory_equal(text, "1 7fc00000 nan 7f800000 inf\n", second - text);
	assert_string_equal(second, "2 3dcccccd 0.100000001 3f800000 1\n");
	free(text);
	remove_folder(dir, 1);
}

static void damage_in_the_middle_is_named(void **state)
{
	int dir = make_folder();
	struct run_table curve;
	size_t attempts;
	struct err err;
	attempt(dir, 0, 1, 2);
	tear(dir, 0, "rubbish\n", 8);
	attempt(dir, 0, 3, 4);
	assert_int_equal(curve_read(dir, &curve, &attempts, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "line 3 of metrics-0.jsonl"));
	remove_folder(dir, 1);
}

/* As a program in Python writes them: a step without a norm, a line without a loss. And as a later
 * version may: a line that is about no step. */
static void what_a_program_logs_beside_the_loss_is_passed_over(void **state)
{
	static const char lines[] =
		"{\"step\": 1, \"loss\": 0.1, \"loss_bits\": \"3dcccccd\", \"accuracy\": 0.5}\n"
		"{\"step\": 1, \"learning_rate\": 0.001}\n"
		"{\"hardware\": {\"processors\": 2}}\n"
		"{\"step\": 2, \"loss_bits\": \"3f800000\", \"norm_bits\": \"40000000\"}\n"
		"{\"step\": 2, \"validation_loss\": 2, \"validation_loss_bits\": \"40000000\"}\n";
	int dir = make_folder();
	attempt(dir, 0, 1, 0);
	tear(dir, 0, lines, sizeof lines - 1);
	char *text = curve_text(dir);
	assert_string_equal(text, "1 3dcccccd 0.100000001 - -\n2 3f800000 1 40000000 2 40000000 2\n");
	free(text);
	remove_folder(dir, 1);
}

/* Lines that could not be written come later, whole and in order. */
static void a_full_disk_costs_no_line(void **state)
{
	int dir = make_folder();
	struct err err;
	assert_int_equal(symlinkat("/dev/full", dir, "metrics-0.jsonl"), 0);
	struct metrics *metrics = metrics_open(dir, 0, &err);
	assert_non_null(metrics);
	struct metrics_step line = { .step = 1 };
	assert_int_equal(metrics_step(metrics, &line, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	line.step = 2;
	assert_int_equal(metrics_step(metrics, &line, &err), -1);
	assert_int_equal(metrics_sync(metrics, &err), -1);
	metrics_close(metrics);
	remove_folder(dir, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merged_curve_is_the_undisturbed_one),
		cmocka_unit_test(values_keep_their_bits),
		cmocka_unit_test(damage_in_the_middle_is_named),
		cmocka_unit_test(what_a_program_logs_beside_the_loss_is_passed_over),
		cmocka_unit_test(a_full_disk_costs_no_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
