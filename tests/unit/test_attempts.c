/* SPDX-License-Identifier: Apache-2.0 */
/* attempts: lines come back as they were appended, a torn line costs only itself, and the breaker counts what it should. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/attempts.h"
#include "common/auto.h"
#include "tests/unit/files.h"

static void append(const struct ckpt_dir *dir, const struct attempts_record *record)
{
	struct err err;
	if (attempts_append(dir, record, &err) < 0)
		fail_msg("%s", err.text);
}

static void records_come_back(void **state)
{
	struct ckpt_dir dir;
	struct err err;
	AUTO_FREE struct attempts_record *found = NULL;
	size_t count;
	const struct attempts_record records[] = {
		{ .event = ATTEMPTS_START, .time = 1.5, .cluster = "big", .job = 4294967295u, .attempt = 1, .step = -1,
			.world_size = 8, .nodes = "n[1-4]" },
		{ .event = ATTEMPTS_NOTICE, .time = 2.5, .cluster = "big", .job = 7, .attempt = 1, .step = 12, .why = "SIGTERM" },
		{ .event = ATTEMPTS_END, .time = 3.5, .cluster = "", .job = 0, .attempt = 1, .step = 13, .why = "said \"no\"\n",
			.status = 75 },
	};
	assert_int_equal(ckpt_dir_open(&dir, files_path("come_back"), &err), 0);
	assert_int_equal(attempts_read(&dir, &found, &count, &err), 0);
	assert_int_equal(count, 0);
	for (size_t i = 0; i < 3; i++)
		append(&dir, &records[i]);
	assert_int_equal(attempts_read(&dir, &found, &count, &err), 0);
	assert_int_equal(count, 3);
	for (size_t i = 0; i < 3; i++)
		assert_memory_equal(&found[i], &records[i], sizeof records[i]);
	ckpt_dir_close(&dir);
}

static void a_torn_line_costs_only_itself(void **state)
{
	struct ckpt_dir dir;
	struct err err;
	struct attempts_record record = { .event = ATTEMPTS_START, .time = 1, .job = 7, .step = 5, .nodes = "n1" };
	struct stat st;
	assert_int_equal(ckpt_dir_open(&dir, files_path("torn"), &err), 0);
	append(&dir, &record);
	assert_int_equal(fstatat(dir.fd, ATTEMPTS_NAME, &st, 0), 0);
	off_t line = st.st_size;
	/* Whatever of the second line reached the disk: the first and the third are read, the second is not. */
	for (off_t kept = 1; kept < line; kept++) {
		AUTO_FREE struct attempts_record *found = NULL;
		size_t count;
		int fd = openat(dir.fd, ATTEMPTS_NAME, O_WRONLY);
		assert_int_equal(ftruncate(fd, line), 0);
		append(&dir, &record);
		assert_int_equal(ftruncate(fd, line + kept), 0);
		close(fd);
		assert_int_equal(attempts_read(&dir, &found, &count, &err), 0);
		assert_int_equal(count, 1);
		free(found);
		record.attempt = 1;
		append(&dir, &record);
		record.attempt = 0;
		assert_int_equal(attempts_read(&dir, &found, &count, &err), 0);
		/* All but the newline was there: whole, and ended by the next writer. */
		assert_int_equal(count, kept == line - 1 ? 3 : 2);
		assert_int_equal(found[count - 1].attempt, 1);
	}
	ckpt_dir_close(&dir);
}

static void rubbish_is_skipped(void **state)
{
	static const char text[] = "\n[]\n{}\n{\"event\":\"dance\",\"attempt\":1,\"job\":1,\"step\":1}\nnull\n\xff\n"
		"{\"event\":\"end\",\"attempt\":1,\"job\":4294967297,\"step\":1}\n"
		"{\"event\":\"end\",\"attempt\":4294967297,\"job\":1,\"step\":1}\n"
		"{\"event\":\"end\",\"attempt\":1,\"job\":1,\"step\":-2}\n"
		"{\"event\":\"end\",\"attempt\":1,\"job\":1,\"step\":1,\"later\":true}\n{\"event\":\"end\"";
	AUTO_FREE struct attempts_record *found = NULL;
	size_t count;
	struct err err;
	assert_int_equal(attempts_parse(text, sizeof text - 1, &found, &count, &err), 0);
	assert_int_equal(count, 1);
	assert_int_equal(found[0].event, ATTEMPTS_END);
}

/* Attempts as text: "5" starts from step 5, "n" a notice, "e" an end, "x" a start of another job. */
static int streak(const char *text, int64_t newest)
{
	struct attempts_record records[32] = { 0 };
	size_t count = 0;
	for (; *text; text++) {
		struct attempts_record *record = &records[count++];
		*record = (struct attempts_record){ .job = 7, .cluster = "c", .step = *text - '0' };
		record->event = *text == 'n' ? ATTEMPTS_NOTICE : strchr("eql", *text) ? ATTEMPTS_END : ATTEMPTS_START;
		record->status = *text == 'q' ? EXIT_REQUEUE : *text == 'l' ? EXIT_LOST : 0;
		if (*text == 'x')
			*record = (struct attempts_record){ .job = 8, .cluster = "c", .event = ATTEMPTS_START, .step = 99 };
	}
	return attempts_without_progress(records, count, "c", 7, newest);
}

static void the_breaker_counts_attempts_without_progress(void **state)
{
	assert_int_equal(streak("", -1), 0);
	assert_int_equal(streak("555", 5), 3);
	assert_int_equal(streak("5e5e5e", 5), 3);
	/* A newer durable step, of the last attempt or of one before, ends the row. */
	assert_int_equal(streak("555", 6), 0);
	assert_int_equal(streak("355", 5), 2);
	assert_int_equal(streak("333777", 7), 3);
	/* So does a notice. */
	assert_int_equal(streak("555n", 5), 0);
	assert_int_equal(streak("55n5e", 5), 1);
	assert_int_equal(streak("n555", 5), 3);
	assert_int_equal(streak("5nq5nq5nq", 5), 0);
	/* But not the SIGTERM that a crash of another rank brings about: that attempt ends by a lost peer. */
	assert_int_equal(streak("5nl5nl5nl", 5), 3);
	assert_int_equal(streak("5nl5nq5nl", 5), 1);
	/* A checkpoint that was set aside is no progress. */
	assert_int_equal(streak("553", 3), 3);
	/* Other jobs neither count nor interrupt. */
	assert_int_equal(streak("xxx", 99), 0);
	assert_int_equal(streak("5x5x5", 5), 3);
	struct attempts_record outside[3] = { { .event = ATTEMPTS_START }, { .event = ATTEMPTS_START },
		{ .event = ATTEMPTS_START } };
	assert_int_equal(attempts_without_progress(outside, 3, "", 0, -1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_come_back),
		cmocka_unit_test(a_torn_line_costs_only_itself),
		cmocka_unit_test(rubbish_is_skipped),
		cmocka_unit_test(the_breaker_counts_attempts_without_progress),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
