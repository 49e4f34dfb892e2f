/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and checks sample checkpoints, for tests that kill it or make its system calls fail.
 *   ckpt_writer save DIR FIRST LAST   claims DIR and saves the steps FIRST to LAST; status 0 only if all were saved
 *   ckpt_writer newest DIR            claims DIR, prints the newest step that verifies and holds its state, or "none"
 *   ckpt_writer race DIR              claims DIR, prints "won" or the refusal, and stays its owner until its input ends */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/ckpt_save.h"
#include "checkpoint/owner.h"
#include "checkpoint/retention.h"
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
		if (result < 0)
			status = fail(&err);
		else if (ckpt_dir_retain(dir, &policy, token, &err) < 0)
			status = fail(&err);
		mark(MARK_END);
	}
	return status;
}

static int newest(const struct ckpt_dir *dir, const char *token)
{
	struct ckpt *ckpt;
	struct err err;
	if (ckpt_dir_clean(dir, token, &err) < 0)
		return fail(&err);
	mark(MARK_BEGIN);
	int found = ckpt_open_newest(dir, 1, &ckpt, &err);
	mark(MARK_END);
	if (found < 0)
		return fail(&err);
	if (!found)
		return puts("none") < 0;
	int64_t step = ckpt_manifest(ckpt)->step;
	if (ckpt_sample_check(ckpt, step, &err) < 0)
		return fail(&err);
	printf("%" PRId64 "\n", step);
	ckpt_close(ckpt);
	return 0;
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
	struct owner owner = { .cluster = "test", .job = 1 };
	if (argc < 3) {
		fprintf(stderr, "usage: ckpt_writer save DIR FIRST LAST | newest DIR | race DIR\n");
		return EXIT_USAGE;
	}
	if (ckpt_dir_open(&dir, argv[2], &err) < 0)
		return fail(&err);
	struct owner last;
	if (strcmp(argv[1], "race") == 0)
		owner.job = (uint32_t)getpid();
	else if (owner_read(&dir, &last, &err) == 1)
		owner.attempt = last.attempt + 1;
	if (owner_claim(&dir, &owner, NULL, NULL, 10, &err) < 0)
		return fail(&err);
	if (strcmp(argv[1], "save") == 0 && argc == 5)
		return save(&dir, owner.token, atoll(argv[3]), atoll(argv[4]));
	if (strcmp(argv[1], "race") == 0)
		return race();
	return newest(&dir, owner.token);
}
