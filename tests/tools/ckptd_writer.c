/* SPDX-License-Identifier: Apache-2.0 */
/* Saves sample checkpoints by way of the checkpoint service, as a trainer does, for tests that kill
 * it, make its system calls fail or cut the power. ckptd_writer DIR FIRST LAST [PARTS] claims DIR
 * and hands over the steps FIRST to LAST, in PARTS parts with a service each. Prints "attempt" when
 * that is on record, "step K" as soon as step K is durable, "failed K: WHY", and "service: WHY"
 * when one was lost. Status 0 only if all were saved. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/client/ckptd_client.h"
#include "checkpoint/directory/attempts.h"
#include "checkpoint/directory/owner.h"
#include "tests/tools/ckpt_sample.h"

#define PARTS_MAX 8
#define PATIENCE 60.0
#define SHARD_SIZE 64 /* bytes: several shards */

/* What one designated rank has. */
struct writer {
	struct snapshot_memory memory;
	struct ckpt_sample layout;
	struct ckptd_client *client;
};

static int fail(const struct err *err)
{
	fprintf(stderr, "ckptd_writer: %s\n", err->text);
	return (int)err->status;
}

static void on_ended(void *arg, const struct save_result *result)
{
	(void)arg;
	if (result->outcome == SAVE_DURABLE)
		printf("step %" PRId64 "\n", result->step);
	if (result->outcome == SAVE_FAILED)
		printf("failed %" PRId64 ": %s\n", result->step, result->err.text);
	fflush(stdout);
}

static void on_lost(void *arg, const char *text)
{
	(void)arg;
	printf("service: %s\n", text);
	fflush(stdout);
}

static int begin(const struct ckpt_dir *dir, struct owner *owner, struct err *err)
{
	struct owner last;
	if (owner_read(dir, &last, err) == 1)
		owner->attempt = last.attempt + 1;
	if (owner_claim(dir, owner, NULL, NULL, 10, err) < 0)
		return -1;
	const struct attempts_record start = { .event = ATTEMPTS_START,
		.cluster = "test",
		.job = 1,
		.attempt = owner->attempt,
		.step = -1,
		.world_size = 1 };
	if (attempts_append(dir, &start, err) < 0)
		return -1;
	puts("attempt");
	fflush(stdout);
	return 0;
}

static int start_writer(struct writer *writer, const struct ckpt_dir *dir, const char *token,
	int part, int parts, const char *first, struct err *err)
{
	const struct ckptd_plan plan = { .dir = dir,
		.token = token,
		.memory = &writer->memory,
		.snapshot = &writer->layout.snapshot,
		.retention = { .keep_last = 2 },
		.timeout = PATIENCE,
		.host = part == 0 && parts > 1 ? "127.0.0.1" : NULL,
		.first = part > 0 ? first : NULL,
		.ended = on_ended,
		.lost = on_lost };
	if (snapshot_memory_create(&writer->memory, 2, sizeof(struct ckpt_sample), err) < 0)
		return -1;
	/* Described in the slot, where its pointers lead, and kept outside of it. */
	struct ckpt_sample *slot = writer->memory.base[0];
	ckpt_sample_fill(slot, 0);
	ckpt_sample_part(slot, part, parts, SHARD_SIZE);
	writer->layout = *slot;
	writer->layout.snapshot.tensors = writer->layout.tensors;
	writer->layout.snapshot.slices = writer->layout.slices;
	writer->client = ckptd_client_open(&plan, err);
	return writer->client ? 0 : -1;
}

static int hand_over(struct writer *writer, int64_t step, struct err *err)
{
	int slot = ckptd_client_buffer(writer->client, -1, PATIENCE);
	if (slot < 0)
		return err_set(err, "there is no free slot for step %" PRId64, step);
	struct ckpt_sample *sample = writer->memory.base[slot];
	ckpt_sample_fill(sample, step);
	struct snapshot snapshot = writer->layout.snapshot;
	snapshot.at = sample->snapshot.at;
	return ckptd_client_save(writer->client, slot, &snapshot, err);
}

/* Every step waits for the one before, so that at most one is under way. */
static int save(struct writer *writers, int parts, int64_t first, int64_t last)
{
	struct err err;
	int status = 0;
	for (int64_t step = first; step <= last; step++) {
		for (int part = 0; part < parts; part++)
			if (hand_over(&writers[part], step, &err) < 0)
				status = fail(&err);
		for (int part = 0; part < parts; part++)
			if (ckptd_client_wait(writers[part].client, step, PATIENCE, &err) < 0)
				status = fail(&err);
	}
	return status;
}

int main(int argc, char **argv)
{
	static struct writer writers[PARTS_MAX];
	struct ckpt_dir dir;
	struct err err;
	struct owner owner = { .cluster = "test", .job = 1 };
	int parts = argc == 5 ? atoi(argv[4]) : 1;
	if (argc < 4 || argc > 5 || parts < 1 || parts > PARTS_MAX) {
		fprintf(stderr, "usage: ckptd_writer DIR FIRST LAST [PARTS]\n");
		return EXIT_USAGE;
	}
	if (ckpt_dir_open(&dir, argv[1], &err) < 0 || begin(&dir, &owner, &err) < 0)
		return fail(&err);
	for (int part = 0; part < parts; part++)
		if (start_writer(&writers[part], &dir, owner.token, part, parts,
				part > 0 ? ckptd_client_address(writers[0].client) : NULL, &err)
			< 0)
			return fail(&err);
	int status = save(writers, parts, atoll(argv[2]), atoll(argv[3]));
	for (int part = 0; part < parts; part++) {
		ckptd_client_close(writers[part].client, 0);
		snapshot_memory_release(&writers[part].memory);
	}
	ckpt_dir_close(&dir);
	return status;
}
