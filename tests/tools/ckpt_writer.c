/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and checks sample checkpoints, for tests that kill it, make its system calls fail or cut
 * the power:
 *
 *     ckpt_writer save DIR FIRST LAST [PARTS THREADS WAY]
 *         claims DIR and saves the steps FIRST to LAST; status 0 only if all were saved. Prints
 *         "attempt" and "step K" as soon as the record of the attempt and each step are durable.
 *         With PARTS each step has a tensor of 400 kB more and is saved in PARTS parts, each by a
 *         process of its own with THREADS threads, through the page cache where WAY is "buffered"
 *     ckpt_writer newest DIR
 *         claims DIR, finishes what is complete, prints the newest step that verifies and holds its
 *         state, or "none"
 *     ckpt_writer resume DIR
 *         the same, then prints the number of attempts on record, and saves the next step
 *     ckpt_writer race DIR
 *         claims DIR, prints "won" or the refusal, and stays its owner until its input ends */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/directory/attempts.h"
#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/io.h"
#include "common/log.h"
#include "tests/tools/ckpt_sample.h"

/* Marks in a trace where what is tested begins and ends: close of a descriptor that is none. */
#define MARK_BEGIN 1000000
#define MARK_END 1000001

static void mark(int fd)
{
	close(fd);
}

static int fail(const struct err *err)
{
	fprintf(stderr, "ckpt_writer: %s\n", err->text);
	return err->status;
}

/* Outside the marks: it is no part of what is tested. */
static void tell_durable(int64_t step)
{
	mark(MARK_END);
	printf("step %" PRId64 "\n", step);
	fflush(stdout);
	mark(MARK_BEGIN);
}

static int begin_attempt(const struct ckpt_dir *dir, const struct owner *owner)
{
	const struct attempts_record start = { .event = ATTEMPTS_START,
		.cluster = "test",
		.job = 1,
		.attempt = owner->attempt,
		.step = -1,
		.world_size = 1 };
	struct err err;
	if (attempts_append(dir, &start, &err) < 0)
		return fail(&err);
	puts("attempt");
	fflush(stdout);
	return 0;
}

/* The sample with a tensor that takes several requests, each of them several pages, to write. */
#define BIG "big"
#define BIG_ELEMENTS 100003

struct big_sample {
	struct ckpt_sample sample;
	struct snapshot_tensor tensors[CKPT_SAMPLE_TENSORS + 1 + CKPT_SAMPLE_STATE];
	uint32_t values[BIG_ELEMENTS];
};

static uint32_t big_value(int64_t step, size_t element)
{
	return (uint32_t)(element + 1) * 2654435761u ^ (uint32_t)step;
}

/* Odd steps have what version 2 of the format adds: tests interrupt the save of step 3, with one of
 * version 1 before and after it. */
static void fill(struct ckpt_sample *sample, int64_t step)
{
	ckpt_sample_fill(sample, step);
	if (step % 2)
		ckpt_sample_add_state(sample);
}

static void fill_big(struct big_sample *big, int64_t step, int part, int parts)
{
	fill(&big->sample, step);
	ckpt_sample_part(&big->sample, part, parts, 100);
	for (size_t i = 0; i < BIG_ELEMENTS; i++)
		big->values[i] = big_value(step, i);
	memcpy(big->tensors, big->sample.tensors, CKPT_SAMPLE_TENSORS * sizeof big->tensors[0]);
	big->tensors[CKPT_SAMPLE_TENSORS] = (struct snapshot_tensor) { .name = BIG,
		.dtype = SAFETENSORS_U32,
		.dims = 1,
		.shape = { BIG_ELEMENTS },
		.writer = parts - 1,
		.data = part == parts - 1 ? big->values : NULL };
	memcpy(big->tensors + CKPT_SAMPLE_TENSORS + 1, big->sample.tensors + CKPT_SAMPLE_TENSORS,
		CKPT_SAMPLE_STATE * sizeof big->tensors[0]);
	big->sample.snapshot.tensors = big->tensors;
	big->sample.snapshot.tensor_count++;
}

static int check_big(struct ckpt *ckpt, int64_t step, struct err *err)
{
	static uint32_t found[BIG_ELEMENTS];
	if (!ckpt_tensor_find(ckpt, BIG))
		return 0;
	if (ckpt_read_tensor(ckpt, BIG, 0, BIG_ELEMENTS, found, err) < 0)
		return -1;
	for (size_t i = 0; i < BIG_ELEMENTS; i++)
		if (found[i] != big_value(step, i))
			return err_set(err, "element %zu of " BIG " differs", i);
	return 0;
}

#define PARTS_MAX 16

/* One part, by a process of its own, which sends its text. */
static pid_t start_part(const struct ckpt_dir *dir, const struct snapshot *snapshot,
	const char *token, const struct ckpt_save_options *options, int *from)
{
	int ends[2];
	char *text;
	size_t size;
	struct err err;
	if (pipe(ends) < 0)
		return -1;
	*from = ends[0];
	pid_t child = fork();
	if (child == 0) {
		int result = ckpt_save_part(dir, snapshot, token, options, &text, &size, NULL, &err);
		if (result == 0)
			result = io_write_full(ends[1], text, size);
		_exit(result < 0 ? fail(&err) : 0);
	}
	close(ends[1]);
	return child;
}

static int save_parts(const struct ckpt_dir *dir, const char *token, int64_t step, int parts,
	const struct ckpt_save_options *options, struct err *err)
{
	static struct big_sample big[PARTS_MAX];
	static char room[PARTS_MAX][1 << 16];
	char *texts[PARTS_MAX];
	size_t sizes[PARTS_MAX];
	pid_t children[PARTS_MAX];
	int from[PARTS_MAX], result = 0, status;
	for (int i = 0; i < parts; i++) {
		fill_big(&big[i], step, i, parts);
		children[i] = start_part(dir, &big[i].sample.snapshot, token, options, &from[i]);
	}
	for (int i = 0; i < parts; i++) {
		ssize_t n = children[i] > 0 ? io_read_full(from[i], room[i], sizeof room[i]) : -1;
		if (n < 0)
			result = err_fail(err, EXIT_LOST, "couldn't hear of part %d: %m", i + 1);
		texts[i] = room[i];
		sizes[i] = n > 0 ? (size_t)n : 0;
		if (children[i] <= 0 || waitpid(children[i], &status, 0) < 0 || status != 0)
			result = err_fail(err, EXIT_LOST, "part %d failed", i + 1);
		close(from[i]);
	}
	if (result == 0)
		return ckpt_commit(dir, step, token, parts, texts, sizes, NULL, err);
	ckpt_discard(dir, step, token, NULL);
	return -1;
}

static int save_how(const struct ckpt_dir *dir, const char *token, int64_t step, char **how,
	struct err *err)
{
	static struct big_sample big;
	const struct ckpt_save_options options = { .threads = atoi(how[1]),
		.buffered = strcmp(how[2], "buffered") == 0 };
	int parts = atoi(how[0]);
	if (parts < 1 || parts > PARTS_MAX)
		return err_fail(err, EXIT_USAGE, "PARTS is 1 to %d", PARTS_MAX);
	if (parts > 1)
		return save_parts(dir, token, step, parts, &options, err);
	fill_big(&big, step, 0, 1);
	return ckpt_save(dir, &big.sample.snapshot, token, &options, NULL, err);
}

/* `how`: PARTS, THREADS and WAY; NULL: as it is done by default. */
static int save(const struct ckpt_dir *dir, const char *token, int64_t first, int64_t last,
	char **how)
{
	const struct retention policy = { .keep_last = 2 };
	struct ckpt_sample sample;
	struct err err;
	int status = 0;
	for (int64_t step = first; step <= last; step++) {
		fill(&sample, step);
		mark(MARK_BEGIN);
		int result = how ? save_how(dir, token, step, how, &err)
						 : ckpt_save(dir, &sample.snapshot, token, NULL, NULL, &err);
		if (result == 0)
			tell_durable(step);
		if (result < 0)
			status = fail(&err);
		else if (remove_expired(dir, &policy, token, &err) < 0)
			status = fail(&err);
		mark(MARK_END);
	}
	return status;
}

/* *step is -1 where there is none. */
static int newest(const struct ckpt_dir *dir, const char *token, int64_t *step)
{
	struct ckpt *ckpt;
	struct err err;
	*step = -1;
	mark(MARK_BEGIN);
	if (ckpt_finish(dir, token, 1, &err) < 0 || remove_leftovers(dir, token, &err) < 0)
		return fail(&err);
	int found = ckpt_open_newest(dir, 1, &ckpt, &err);
	mark(MARK_END);
	if (found < 0)
		return fail(&err);
	if (!found)
		return puts("none") < 0;
	*step = ckpt_manifest(ckpt)->step;
	if (ckpt_sample_check(ckpt, *step, &err) < 0 || check_big(ckpt, *step, &err) < 0)
		return fail(&err);
	printf("%" PRId64 "\n", *step);
	ckpt_close(ckpt);
	return 0;
}

static int count_attempts(const struct ckpt_dir *dir)
{
	struct attempts_record *records;
	size_t count;
	struct err err;
	if (attempts_read(dir, &records, &count, &err) < 0)
		return fail(&err);
	printf("%zu\n", count);
	free(records);
	return 0;
}

static int resume(const struct ckpt_dir *dir, const struct owner *owner)
{
	int64_t step;
	int status = newest(dir, owner->token, &step);
	if (status == 0)
		status = count_attempts(dir);
	if (status == 0)
		status = begin_attempt(dir, owner);
	return status ? status : save(dir, owner->token, step + 1, step + 1, NULL);
}

static int race(void)
{
	char byte;
	puts("won");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	struct ckpt_dir dir;
	struct err err;
	/* Every start is a higher attempt of one job, as after a requeue; in a race they are two jobs.
	 */
	struct owner owner = { .cluster = "test", .job = 1 }, last;
	const char *what = argc < 3 ? "" : argv[1];
	int64_t step;
	bool saves = strcmp(what, "save") == 0;
	if (argc != (saves ? 5 : 3) && !(saves && argc == 8)) {
		fprintf(stderr,
			"usage: ckpt_writer save DIR FIRST LAST [PARTS THREADS WAY] | newest DIR | resume DIR "
			"| race DIR\n");
		return EXIT_USAGE;
	}
	log_set_level(LOG_LEVEL_WARN); /* what was finished is no complaint */
	if (ckpt_dir_open(&dir, argv[2], &err) < 0)
		return fail(&err);
	if (strcmp(what, "race") == 0)
		owner.job = (uint32_t)getpid();
	else if (owner_read(&dir, &last, &err) == 1)
		owner.attempt = last.attempt + 1;
	if (owner_claim(&dir, &owner, NULL, NULL, 10, &err) < 0)
		return fail(&err);
	if (strcmp(what, "save") == 0) {
		int status = begin_attempt(&dir, &owner);
		return status
			? status
			: save(&dir, owner.token, atoll(argv[3]), atoll(argv[4]), argc == 8 ? argv + 5 : NULL);
	}
	if (strcmp(what, "race") == 0)
		return race();
	return strcmp(what, "resume") == 0 ? resume(&dir, &owner) : newest(&dir, owner.token, &step);
}
