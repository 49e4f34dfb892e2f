/* SPDX-License-Identifier: Apache-2.0 */
/* flight: what is written is what is read, also from the file of a process that was killed or
 * stopped in the midst of a write; nothing else is believed; and the table of many ranks. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/hash.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "telemetry/flight_files.h"
#include "telemetry/flight_table.h"

#define PART 256

static const struct ident ident = { .rank = 3,
	.world_size = 8,
	.local_world_size = 8,
	.node_count = 1,
	.attempt = 2,
	.job = 17,
	.step = 1,
	.node = "n3" };
static const struct flight_operation exchange = { .operation = "exchange",
	.label = "bucket 3 of step 17",
	.step = 17,
	.bucket = 3,
	.bytes = 1000,
	.entered = 5 };

static struct flight_recorder *create(void)
{
	struct err err;
	struct flight_recorder *flight = flight_create(&ident, &err);
	assert_non_null(flight);
	return flight;
}

static struct flight_view view_of(const struct flight_recorder *flight)
{
	unsigned char bytes[FLIGHT_SIZE];
	struct flight_view view;
	struct err err;
	flight_copy(flight, bytes);
	assert_int_equal(flight_read(bytes, sizeof bytes, &view, &err), 0);
	return view;
}

static void assert_words(const struct flight_view *view, const char *want)
{
	char words[200];
	flight_words(view, words, sizeof words);
	assert_string_equal(words, want);
}

static void what_is_written_is_read(void **state)
{
	struct flight_recorder *flight = create();
	struct flight_view view = view_of(flight);
	assert_int_equal(view.rank, 3);
	assert_int_equal(view.world_size, 8);
	assert_int_equal(view.attempt, 2);
	assert_int_equal(view.process, getpid());
	assert_string_equal(view.node, "n3");
	assert_string_equal(view.run, "job 17, step 1, attempt 2");
	assert_true(fabs(view.wall + clock_now() - clock_wall()) < 5);
	assert_words(&view, "preparing the run");
	for (int i = 0; i < 3; i++) {
		flight_begin(flight, FLIGHT_COMPUTE, (uint64_t)17 + (uint64_t)i, 3);
		view = view_of(flight);
		assert_int_equal(view.step, 17 + i);
		assert_int_equal(view.slot, 3);
		assert_true(view.waits == 0 && view.since > 0 && view.since <= clock_now());
	}
	assert_words(&view, "computing slot 3 of step 19");
	flight_enter(flight, &exchange);
	view = view_of(flight);
	assert_words(&view, "computing slot 3 of step 19"); /* it is queued early: nobody waits */
	flight_wait(flight, true);
	view = view_of(flight);
	assert_words(&view, "waiting in exchange of bucket 3 of step 17");
	assert_int_equal(view.now.bucket, 3);
	assert_int_equal(view.now.step, 17);
	assert_int_equal(view.now.bytes, 1000);
	assert_true(view.now.entered == 5 && view.waits > 5);
	assert_string_equal(view.finished.operation, "");
	flight_finish(flight);
	flight_wait(flight, false);
	view = view_of(flight);
	assert_string_equal(view.now.operation, "");
	assert_string_equal(view.finished.label, "bucket 3 of step 17");
	assert_int_equal(view.finished.bucket, 3);
	assert_true(view.finished_at > 0);
	assert_words(&view, "computing slot 3 of step 19");
	flight_destroy(flight);
}

static void each_phase_has_its_words(void **state)
{
	static const struct {
		enum flight_phase phase;
		int slot;
		const char *words;
	} known[] = {
		{ FLIGHT_START, -1, "preparing the run" },
		{ FLIGHT_DATA, -1, "taking data for step 5" },
		{ FLIGHT_DATA, 2, "taking data for slot 2 of step 5" },
		{ FLIGHT_COMPUTE, 2, "computing slot 2 of step 5" },
		{ FLIGHT_REDUCE, -1, "ending the reduction of step 5" },
		{ FLIGHT_UPDATE, -1, "updating the weights of step 5" },
		{ FLIGHT_VALIDATE, -1, "validating after step 5" },
		{ FLIGHT_SAVE, -1, "handing over the save of step 5" },
		{ FLIGHT_CLOSE, -1, "ending the run after step 5" },
		{ FLIGHT_FORWARD, -1, "in the forward pass of step 5" },
		{ FLIGHT_BACKWARD, -1, "in the backward pass of step 5" },
		{ FLIGHT_STEP, -1, "in step 5" },
		{ FLIGHT_WORD, -1, "waiting for the other ranks after step 5" },
		{ FLIGHT_SAMPLE, -1, "writing the sample text after step 5" },
	};
	struct flight_recorder *flight = create();
	assert_int_equal(known[sizeof known / sizeof known[0] - 1].phase, FLIGHT_PHASES - 1);
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		flight_begin(flight, known[i].phase, 5, known[i].slot);
		struct flight_view view = view_of(flight);
		assert_words(&view, known[i].words);
	}
	/* of a program that has not said in which step it is */
	flight_begin(flight, FLIGHT_WORD, 0, -1);
	struct flight_view view = view_of(flight);
	assert_words(&view, "waiting for the other ranks after a step");
	flight_destroy(flight);
}

static void a_line_tells_everything(void **state)
{
	char line[600];
	struct flight_recorder *flight = create();
	struct flight_operation next = { .operation = "all-gather",
		.label = "control of step 17",
		.step = 17,
		.bucket = -1,
		.bytes = 96,
		.entered = 0 };
	flight_begin(flight, FLIGHT_REDUCE, 17, -1);
	flight_enter(flight, &exchange);
	flight_finish(flight);
	next.entered = clock_now();
	flight_enter(flight, &next);
	struct flight_view view = view_of(flight);
	view.since = next.entered - 2;
	view.finished_at = next.entered - 1;
	flight_line(&view, next.entered + 3, line, sizeof line);
	assert_string_equal(line,
		"ending the reduction of step 17 for 5.0 s, with all-gather of control of step 17 (96 "
		"bytes, for 3.0 s) under way; complete last: exchange of bucket 3 of step 17, 4.0 s ago");
	view.waits = next.entered + 1;
	flight_line(&view, next.entered + 3, line, sizeof line);
	assert_string_equal(line,
		"waiting in all-gather of control of step 17 (96 bytes) for 2.0 s; complete last: exchange "
		"of bucket 3 of step 17, 4.0 s ago");
	flight_line(&view, next.entered + 3, line, 20);
	assert_string_equal(line, "waiting in all-gath");
	flight_destroy(flight);
}

static int open_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	return fd;
}

/* The parent learns where its child was when it was killed: neither closed nor wrote anything. */
static void a_killed_process_leaves_its_place(void **state)
{
	struct flight_list list;
	struct err err = { .text = "" };
	int status, dirfd = open_dir(files_dir);
	flight_files_begin(dirfd);
	pid_t child = fork();
	if (child == 0) {
		struct flight_file file;
		struct flight_recorder *flight = flight_create(&ident, &err);
		if (!flight || flight_file_open(&file, flight, &ident, files_dir, &err) < 0 || !file.shared)
			_exit(1);
		for (uint64_t step = 1; step <= 1000; step++) {
			flight_begin(flight, FLIGHT_COMPUTE, step, 0);
			flight_enter(flight, &exchange);
		}
		flight_wait(flight, true);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(flight_files_read(files_dir, &list, &err), 0);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.damaged, 0);
	assert_false(list.before);
	assert_int_equal(list.views[0].process, child);
	assert_int_equal(list.views[0].step, 1000);
	assert_words(&list.views[0], "waiting in exchange of bucket 3 of step 17");
	flight_list_clear(&list);
	/* The next attempt moves it aside, once. */
	flight_files_begin(dirfd);
	assert_int_equal(flight_files_read(files_dir, &list, &err), 0);
	assert_int_equal(list.count, 1);
	assert_true(list.before);
	flight_list_clear(&list);
	flight_files_begin(dirfd);
	assert_int_equal(flight_files_read(files_dir, &list, &err), 0);
	assert_int_equal(list.count, 1);
	flight_list_clear(&list);
	close(dirfd);
}

static void who_ends_in_order_leaves_nothing(void **state)
{
	struct flight_file file, other;
	struct flight_view view;
	struct stat st;
	struct err err = { .text = "" };
	struct ident neighbour = ident;
	struct flight_recorder *flight = create(), *second;
	int dirfd = open_dir(files_dir);
	neighbour.rank = 4;
	second = flight_create(&neighbour, &err);
	assert_non_null(second);
	flight_files_begin(dirfd);
	assert_int_equal(flight_file_open(&file, flight, &ident, files_dir, &err), 0);
	assert_int_equal(flight_file_open(&other, second, &neighbour, files_dir, &err), 0);
	flight_begin(second, FLIGHT_UPDATE, 7, -1);
	assert_int_equal(flight_file_peek(&file, 4, &view), 0);
	assert_words(&view, "updating the weights of step 7");
	assert_int_equal(flight_file_peek(&file, 5, &view), -1);
	flight_file_remove(&file);
	flight_file_remove(&other);
	flight_file_remove(&other);
	assert_int_equal(fstatat(dirfd, FLIGHT_FOLDER, &st, 0), -1);
	flight_begin(second, FLIGHT_UPDATE, 8, -1); /* its memory is still there */
	flight_destroy(flight);
	flight_destroy(second);
	flight_destroy(NULL);
	close(dirfd);
}

/* Without a checkpoint directory, or where that is not there. */
static void without_a_directory_the_nodes_memory_has_it(void **state)
{
	struct flight_file file;
	struct flight_list list;
	struct err err = { .text = "" };
	char own[300];
	struct flight_recorder *flight = create();
	setenv("XDG_RUNTIME_DIR", files_path("runtime"), 1);
	mkdir(files_path("runtime"), 0700);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(flight_file_open(&file, flight, &ident, i ? files_path("nowhere") : NULL,
							 &err),
			0);
		assert_false(file.shared);
		assert_int_equal(flight_files_read(NULL, &list, &err), 0);
		assert_int_equal(list.count, 1);
		flight_list_clear(&list);
		flight_file_remove(&file);
	}
	/* A folder that others may write to is not used. */
	snprintf(own, sizeof own, "runtime/muster-%u", (unsigned)geteuid());
	assert_int_equal(chmod(files_path(own), 0777), 0);
	setenv("XDG_RUNTIME_DIR", files_path("runtime"), 1);
	assert_int_equal(flight_file_open(&file, flight, &ident, NULL, &err), 0);
	assert_int_equal(access(files_path("runtime/muster-0/standing-17.1.2-00003"), F_OK), -1);
	flight_file_remove(&file);
	/* The next parent's, unless the user has records there. */
	snprintf(own, sizeof own, "/dev/shm/muster-%u", (unsigned)geteuid());
	rmdir(own);
	setenv("XDG_RUNTIME_DIR", files_dir, 1);
	flight_destroy(flight);
}

/* Where the checkpoint directory is on a file server. */
static void a_copy_follows(void **state)
{
	struct err err = { .text = "" };
	struct flight_recorder *flight = create();
	int dirfd = open_dir(files_dir);
	struct flight_follow *follow = flight_follow_begin(flight, dirfd, "rank-00003", &err);
	assert_non_null(follow);
	for (uint64_t step = 5; step <= 6; step++) {
		struct deadline end = deadline_in(HANG_SECONDS);
		struct flight_view view = { 0 };
		flight_begin(flight, FLIGHT_UPDATE, step, -1);
		while (view.step != step) {
			unsigned char bytes[FLIGHT_SIZE + 1];
			int fd = openat(dirfd, "rank-00003", O_RDONLY);
			assert_true(fd >= 0);
			assert_int_equal(flight_read(bytes, (size_t)read(fd, bytes, sizeof bytes), &view, &err),
				0);
			close(fd);
			assert_true(deadline_sleep(end, 0.01));
		}
	}
	flight_follow_end(follow, true);
	assert_int_equal(access(files_path("rank-00003"), F_OK), -1);
	assert_null(flight_follow_begin(flight, dirfd, "no/folder", &err));
	flight_follow_end(NULL, true);
	flight_destroy(flight);
	close(dirfd);
}

/* ---- what can't be believed ---- */

static void seal(unsigned char *bytes)
{
	for (int part = 0; part < 5; part++)
		bytes_put_le64(bytes + part * PART + PART - 8,
			hash_bytes(bytes + part * PART, PART - 8).low);
}

/* Every byte of every part, changed: the head is refused, and of the entries the one before counts.
 */
static void a_torn_entry_is_passed_over(void **state)
{
	unsigned char bytes[FLIGHT_SIZE], changed[FLIGHT_SIZE];
	struct flight_view view;
	struct err err;
	struct flight_recorder *flight = create();
	flight_begin(flight, FLIGHT_COMPUTE, 1, 0); /* number 2, in B */
	flight_begin(flight, FLIGHT_COMPUTE, 2, 0); /* number 3, in A */
	flight_copy(flight, bytes);
	for (size_t i = 0; i < FLIGHT_SIZE; i++) {
		memcpy(changed, bytes, sizeof changed);
		changed[i] ^= 0x10;
		int rc = flight_read(changed, sizeof changed, &view, &err);
		assert_int_equal(rc, i < PART ? -1 : 0);
		if (i >= PART)
			assert_int_equal(view.step, i < 2 * PART ? 1 : 2);
		else
			assert_int_equal(err.status, EXIT_DATA);
	}
	changed[PART] ^= 1;
	changed[2 * PART] ^= 1;
	assert_int_equal(flight_read(changed, sizeof changed, &view, &err), 0);
	assert_int_equal(view.phase, 0);
	assert_words(&view, "where its record does not tell");
	flight_destroy(flight);
}

static void lies_are_refused_or_dropped(void **state)
{
	unsigned char bytes[FLIGHT_SIZE], lie[FLIGHT_SIZE + 1];
	struct flight_view view;
	struct err err;
	struct flight_recorder *flight = create();
	static const struct {
		size_t at;
		unsigned char value;
	} heads[] = { { 8, 200 }, { 12, 0 }, { 15, 0x7f }, { 19, 0xff }, { 32, 7 }, { 97, '\n' } };
	flight_enter(flight, &exchange);
	flight_copy(flight, bytes);
	for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
		memcpy(lie, bytes, sizeof bytes);
		lie[heads[i].at] = heads[i].value;
		seal(lie);
		assert_int_equal(flight_read(lie, FLIGHT_SIZE, &view, &err), -1);
	}
	memcpy(lie, bytes, sizeof bytes);
	memset(lie + 32, 'x', 64); /* a text without an end */
	seal(lie);
	assert_int_equal(flight_read(lie, FLIGHT_SIZE, &view, &err), -1);
	assert_int_equal(flight_read(lie, FLIGHT_SIZE + 1, &view, &err), -1);
	assert_int_equal(flight_read(lie, 0, &view, &err), -1);
	memcpy(lie, bytes, sizeof bytes);
	lie[7] = '2';
	assert_int_equal(flight_read(lie, FLIGHT_SIZE, &view, &err), -1);
	assert_non_null(strstr(err.text, "another version"));
	memcpy(lie, bytes, sizeof bytes);
	lie[PART + 20] = FLIGHT_PHASES;            /* no such phase */
	memset(lie + 3 * PART + 16 + 48, 'x', 64); /* a label without an end */
	memset(lie + 3 * PART + 8, 0xff, 8);       /* not a number */
	seal(lie);
	assert_int_equal(flight_read(lie, FLIGHT_SIZE, &view, &err), 0);
	assert_int_equal(view.phase, 0);
	assert_string_equal(view.now.operation, "");
	assert_true(view.finished_at == 0);
	flight_destroy(flight);
}

/* Control characters of a label don't reach a terminal, and a long one is cut. */
static void labels_are_made_printable(void **state)
{
	struct flight_recorder *flight = create();
	struct flight_operation odd = { .operation = "exchange", .label = "a\nb\x1b[2J", .bucket = -1 };
	flight_enter(flight, &odd);
	assert_string_equal(view_of(flight).now.label, "a?b?[2J");
	memset(odd.label, 'y', sizeof odd.label - 1);
	flight_enter(flight, &odd);
	assert_int_equal(strlen(view_of(flight).now.label), sizeof odd.label - 1);
	flight_destroy(flight);
}

/* ---- while it is written ---- */

struct writing {
	struct flight_recorder *flight;
	atomic_bool over;
};

static void *write_on(void *arg)
{
	struct writing *writing = arg;
	for (uint64_t i = 1; !writing->over; i++)
		flight_begin(writing->flight, FLIGHT_COMPUTE, i, (int)(i % 1000));
	return NULL;
}

static void a_reader_never_sees_half_an_entry(void **state)
{
	struct writing writing = { .flight = create() };
	struct deadline end = deadline_in(0.5), hang = deadline_in(HANG_SECONDS);
	uint64_t last = 0, changes = 0;
	pthread_t thread;
	/* At both places, so that the reader never finds what the record began with: that has no slot.
	 */
	flight_begin(writing.flight, FLIGHT_COMPUTE, 0, 0);
	flight_begin(writing.flight, FLIGHT_COMPUTE, 0, 0);
	assert_int_equal(pthread_create(&thread, NULL, write_on, &writing), 0);
	/* And until both have run beside each other. */
	while (!deadline_passed(end) || (changes <= 10 && !deadline_passed(hang))) {
		struct flight_view view = view_of(writing.flight);
		if (view.phase == 0) /* both were written over while they were copied */
			continue;
		assert_int_equal(view.slot,
			view.step % 1000); /* which may be an older one, where two were written meanwhile */
		changes += view.step != last;
		last = view.step;
	}
	writing.over = true;
	pthread_join(thread, NULL);
	assert_true(changes > 10);
	flight_destroy(writing.flight);
}

/* No system call, and less than what could be measured in a step: a microsecond even on a loaded
 * machine. */
static void writing_is_cheap(void **state)
{
	struct flight_recorder *flight = create();
	double best = 1;
	for (int round = 0; round < 20; round++) {
		double begun = clock_now();
		for (int i = 0; i < 1000; i++) {
			flight_enter(flight, &exchange);
			flight_finish(flight);
		}
		best = fmin(best, (clock_now() - begun) / 2000);
	}
	print_message("# an entry takes %.0f ns\n", best * 1e9);
#ifndef __SANITIZE_THREAD__ /* which watches every word */
	assert_true(best < 5e-6);
#endif
	flight_destroy(flight);
}

/* ---- the table ---- */

static char said[4000];

static void say(void *arg, const char *line)
{
	size_t length = strlen(said);
	snprintf(said + length, sizeof said - length, "%s\n", line);
}

static void ranks_in_one_place_share_a_line(void **state)
{
	struct flight_row rows[8];
	static const char *const words[] = { "waiting", "waiting", "computing", "waiting", "no answer",
		"waiting", "no answer", "waiting" };
	for (int i = 0; i < 8; i++) {
		rows[i] = (struct flight_row) { .rank = i, .silent = words[i][0] == 'n', .since = i + 1 };
		snprintf(rows[i].node, sizeof rows[i].node, "n%d", i / 2 + 1);
		snprintf(rows[i].words, sizeof rows[i].words, "%s", words[i]);
	}
	said[0] = '\0';
	rows[4].since = rows[6].since = 0;
	flight_table(rows, 8, false, say, NULL);
	assert_string_equal(said,
		"rank 2 on n2: computing for 3.0 s\n"
		"ranks 0-1, 3, 5, 7 on n1, n2, n3, n4: waiting for 1.0 to 8.0 s\n"
		"ranks 4, 6 on n3, n4: no answer\n");
	said[0] = '\0';
	rows[0] = (struct flight_row) { .rank = 1, .words = "waiting", .since = 86400 };
	flight_table(rows, 1, true, say, NULL);
	assert_string_equal(said, "rank 1: waiting since 1970-01-02T00:00:00.000Z\n");
	said[0] = '\0';
	flight_table(NULL, 0, true, say, NULL);
	assert_string_equal(said, "");
}

static void a_line_of_many_ranks_ends(void **state)
{
	enum { COUNT = 2000 };
	struct flight_row *rows = calloc(COUNT, sizeof *rows);
	for (int i = 0; i < COUNT; i++) {
		rows[i] = (struct flight_row) { .rank = 2 * i, .words = "waiting" };
		memset(rows[i].node, 'n', sizeof rows[i].node - 1);
		snprintf(rows[i].node, 8, "%d", i);
	}
	said[0] = '\0';
	flight_table(rows, COUNT, false, say, NULL);
	assert_true(strlen(said) < 1600);
	assert_non_null(strstr(said, "28, 30 and 1984 more on "));
	assert_non_null(strstr(said, " and more: waiting"));
	free(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read),
		cmocka_unit_test(each_phase_has_its_words),
		cmocka_unit_test(a_line_tells_everything),
		cmocka_unit_test_setup_teardown(a_killed_process_leaves_its_place, files_setup,
			files_teardown),
		cmocka_unit_test_setup_teardown(who_ends_in_order_leaves_nothing, files_setup,
			files_teardown),
		cmocka_unit_test_setup_teardown(without_a_directory_the_nodes_memory_has_it, files_setup,
			files_teardown),
		cmocka_unit_test_setup_teardown(a_copy_follows, files_setup, files_teardown),
		cmocka_unit_test(a_torn_entry_is_passed_over),
		cmocka_unit_test(lies_are_refused_or_dropped),
		cmocka_unit_test(labels_are_made_printable),
		cmocka_unit_test(a_reader_never_sees_half_an_entry),
		cmocka_unit_test(writing_is_cheap),
		cmocka_unit_test(ranks_in_one_place_share_a_line),
		cmocka_unit_test(a_line_of_many_ranks_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
