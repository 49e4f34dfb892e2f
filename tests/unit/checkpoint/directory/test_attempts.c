/* SPDX-License-Identifier: Apache-2.0 */
/* attempts: lines come back as they were appended, a torn line costs only itself, and the breaker
 * counts what it should. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/directory/attempts.h"
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
		{ .event = ATTEMPTS_START,
			.time = 1.5,
			.cluster = "big",
			.job = 4294967295u,
			.attempt = 1,
			.step = -1,
			.world_size = 8,
			.submitted = 1600.5,
			.started = 2600.5,
			.limit = 3600.5,
			.steps = 5000000000,
			.nodes = "n[1-4]",
			.left_out = "n5,n6",
			.machine = "A \"CPU\" (2 CPUs, 25 GB)",
			.version = "0.2.0" },
		{ .event = ATTEMPTS_NOTICE,
			.time = 2.5,
			.cluster = "big",
			.job = 7,
			.attempt = 1,
			.restart = 3,
			.step = 12,
			.why = "SIGTERM" },
		{ .event = ATTEMPTS_END,
			.time = 3.5,
			.cluster = "",
			.job = 0,
			.attempt = 1,
			.step = 13,
			.why = "said \"no\"\n",
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
	struct attempts_record record = { .event = ATTEMPTS_START,
		.time = 1,
		.job = 7,
		.step = 5,
		.nodes = "n1" };
	struct stat st;
	assert_int_equal(ckpt_dir_open(&dir, files_path("torn"), &err), 0);
	append(&dir, &record);
	assert_int_equal(fstatat(dir.fd, ATTEMPTS_NAME, &st, 0), 0);
	off_t line = st.st_size;
	/* Whatever of the second line reached the disk: the first and the third are read, the second is
	 * not. */
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
	static const char text[] =
		"\n[]\n{}\n{\"event\":\"dance\",\"attempt\":1,\"job\":1,\"step\":1}\nnull\n\xff\n"
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

/* Records as text: "5" starts an attempt from step 5, "+" another start in it from the same step,
 * "r" a restart in it by muster-run, "n" a notice, "N" one at the end of its time, "q", "l" and "e"
 * ends with 75, 69 and 0, "x" a start of another job. The next attempt asks. */
static int streak_in(const char *text, int64_t newest, int attempt)
{
	struct attempts_record records[32] = { 0 };
	size_t count = 0;
	int64_t step = -1;
	int current = -1, restart = 0;
	for (; *text; text++) {
		struct attempts_record *record = &records[count++];
		bool starts = !strchr("+rnNqlex", *text);
		current += starts;
		restart = starts ? 0 : restart + (*text == 'r');
		step = starts ? *text - '0' : step;
		*record = (struct attempts_record) { .job = 7,
			.cluster = "c",
			.attempt = current,
			.restart = restart,
			.step = step,
			.time = 1000 };
		record->event = strchr("nN", *text) ? ATTEMPTS_NOTICE
			: strchr("eql", *text)          ? ATTEMPTS_END
											: ATTEMPTS_START;
		record->limit = record->event == ATTEMPTS_START ? 4600 : 0;
		record->time += *text == 'n' ? 1200 : *text == 'N' ? 3600 : 0;
		record->status = *text == 'q' ? EXIT_REQUEUE : *text == 'l' ? EXIT_LOST : 0;
		if (*text == 'x')
			*record = (struct attempts_record) { .job = 8,
				.cluster = "c",
				.event = ATTEMPTS_START,
				.step = 99 };
	}
	const struct attempts_asker asker = { "c", 7, attempt < 0 ? current + 1 : attempt,
		attempt == current ? restart : 0 };
	return attempts_without_progress(records, count, &asker, newest);
}

static int streak(const char *text, int64_t newest)
{
	return streak_in(text, newest, -1);
}

static void the_breaker_counts_attempts_without_progress(void **state)
{
	assert_int_equal(streak("", -1), 0);
	assert_int_equal(streak("555", 5), 3);
	assert_int_equal(streak("5l5l5l", 5), 3);
	/* A newer durable step, of the last attempt or of one before, ends the row. */
	assert_int_equal(streak("555", 6), 0);
	assert_int_equal(streak("355", 5), 2);
	assert_int_equal(streak("333777", 7), 3);
	/* So does a notice. */
	assert_int_equal(streak("555n", 5), 0);
	assert_int_equal(streak("55n5l", 5), 1);
	assert_int_equal(streak("n555", 5), 3);
	assert_int_equal(streak("5nq5nq5nq", 5), 0);
	/* But not the SIGTERM that a crash of another rank brings about: that attempt ends by a lost
	 * peer. */
	assert_int_equal(streak("5nl5nl5nl", 5), 3);
	assert_int_equal(streak("5nl5nq5nl", 5), 1);
	/* A checkpoint that was set aside is no progress. */
	assert_int_equal(streak("553", 3), 3);
	/* Other jobs neither count nor interrupt. */
	assert_int_equal(streak("xxx", 99), 0);
	assert_int_equal(streak("5x5x5", 5), 3);
	const struct attempts_asker nobody = { "", 0, 0, 0 };
	struct attempts_record outside[3] = { { .event = ATTEMPTS_START }, { .event = ATTEMPTS_START },
		{ .event = ATTEMPTS_START } };
	assert_int_equal(attempts_without_progress(outside, 3, &nobody, -1), 0);
}

/* The end of the time is no notice: an attempt that hangs runs into it. */
static void the_end_of_the_time_is_no_excuse(void **state)
{
	assert_int_equal(streak("5N5N5N", 5), 3);
	assert_int_equal(streak("5N5n5N", 5), 1);
	assert_int_equal(streak("5Nq5Nq5Nq", 5), 3);
	/* One that came further has used its time. */
	assert_int_equal(streak("5N5N5N", 6), 0);
	assert_int_equal(streak("3N4N5N", 5), 1);
	/* A warning comes before the end, as well: who hangs has both. */
	assert_int_equal(streak("5NN5NN5NN", 5), 3);
	/* Where the limit isn't known, each notice counts as one. */
	const struct attempts_asker asker = { "", 7, 1, 0 };
	const struct attempts_record records[] = { { .event = ATTEMPTS_START, .job = 7, .time = 1 },
		{ .event = ATTEMPTS_NOTICE, .job = 7, .time = 90000 } };
	assert_int_equal(attempts_without_progress(records, 2, &asker, 0), 0);
}

static void tries_by_hand_are_one_attempt(void **state)
{
	/* Three in the loop of a script, or from a shell of salloc, and one more. */
	assert_int_equal(streak_in("5l+l+l", 5, 0), 0);
	assert_int_equal(streak("5l+l+l", 5), 1);
	assert_int_equal(streak("5l+l5l+l+l", 5), 2);
	assert_int_equal(streak_in("5l5l5l+l", 5, 2), 2);
	/* Each of them may have brought something. */
	assert_int_equal(streak("5l5l+l", 6), 0);
	/* What has finished is not in vain. */
	assert_int_equal(streak("5e5e5e", 5), 0);
	assert_int_equal(streak("5l5e+l5l", 5), 2);
	assert_int_equal(streak("5l5l+e5l", 5), 1);
}

static void restarts_in_an_attempt_count(void **state)
{
	assert_int_equal(streak("5lrlrl", 5), 3);
	assert_int_equal(streak("5lrl+l", 5), 2);
	assert_int_equal(streak("5lrl5l", 5), 3);
	assert_int_equal(streak("5lrlrl", 6), 0);
	/* The last of them asks itself, and has begun. */
	assert_int_equal(streak_in("5lrlrlr", 5, 0), 3);
	assert_int_equal(streak_in("5lr", 5, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(records_come_back),
		cmocka_unit_test(a_torn_line_costs_only_itself),
		cmocka_unit_test(restarts_in_an_attempt_count),
		cmocka_unit_test(rubbish_is_skipped),
		cmocka_unit_test(the_breaker_counts_attempts_without_progress),
		cmocka_unit_test(the_end_of_the_time_is_no_excuse),
		cmocka_unit_test(tries_by_hand_are_one_attempt),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
