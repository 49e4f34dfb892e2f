/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and checks sample checkpoints, for tests that kill it, make its system calls fail or cut the power.
 *   ckpt_writer save DIR FIRST LAST   claims DIR and saves the steps FIRST to LAST; status 0 only if all were saved. Prints
 *                                     "attempt" and "step K" as soon as the record of the attempt and each step are durable
 *   ckpt_writer newest DIR            claims DIR, finishes what is complete, prints the newest step that verifies and holds
 *                                     its state, or "none"
 *   ckpt_writer resume DIR            the same, then prints the number of attempts on record, and saves the next step
 *   ckpt_writer race DIR              claims DIR, prints "won" or the refusal, and stays its owner until its input ends */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/attempts.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/owner.h"
#include "checkpoint/retention.h"
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
	const struct attempts_record start = { .event = ATTEMPTS_START, .cluster = "test", .job = 1,
		.attempt = owner->attempt, .step = -1, .world_size = 1 };
	struct err err;
	if (attempts_append(dir, &start, &err) < 0)
		return fail(&err);
	puts("attempt");
	fflush(stdout);
	return 0;
}

static int save(const struct ckpt_dir *dir, const char *token, int64_t first, int64_t last)
{
	const struct retention policy = { .keep_last = 2 };
	struct ckpt_sample sample;
	struct err err;
	int status = 0;
	for (int64_t step = first; step <= last; step++) {
		ckpt_sample_fill(&sample, step);
		mark(MARK_BEGIN);
		int result = ckpt_save(dir, &sample.snapshot, token, NULL, NULL, &err);
		if (result == 0)
			tell_durable(step);
		if (result < 0)
			status = fail(&err);
		else if (ckpt_dir_retain(dir, &policy, token, &err) < 0)
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
	if (ckpt_finish(dir, token, 1, &err) < 0 || ckpt_dir_clean(dir, token, &err) < 0)
		return fail(&err);
	int found = ckpt_open_newest(dir, 1, &ckpt, &err);
	mark(MARK_END);
	if (found < 0)
		return fail(&err);
	if (!found)
		return puts("none") < 0;
	*step = ckpt_manifest(ckpt)->step;
	if (ckpt_sample_check(ckpt, *step, &err) < 0)
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
	return status ? status : save(dir, owner->token, step + 1, step + 1);
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
	/* Every start is a higher attempt of one job, as after a requeue; in a race they are two jobs. */
	struct owner owner = { .cluster = "test", .job = 1 }, last;
	const char *what = argc < 3 ? "" : argv[1];
	int64_t step;
	if (argc != (strcmp(what, "save") == 0 ? 5 : 3)) {
		fprintf(stderr, "usage: ckpt_writer save DIR FIRST LAST | newest DIR | resume DIR | race DIR\n");
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
		return status ? status : save(&dir, owner.token, atoll(argv[3]), atoll(argv[4]));
	}
	if (strcmp(what, "race") == 0)
		return race();
	return strcmp(what, "resume") == 0 ? resume(&dir, &owner) : newest(&dir, owner.token, &step);
}
