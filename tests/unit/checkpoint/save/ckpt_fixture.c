/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "common/log.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/checkpoint/save/ckpt_fixture.h"

static void count(void *arg, enum log_level level, const char *line)
{
	struct ckpt_fixture *fixture = arg;
	fixture->errors += level == LOG_LEVEL_ERROR;
}

void ckpt_fixture_open(struct ckpt_fixture *fixture, const char *path)
{
	struct err err;
	*fixture = (struct ckpt_fixture) { 0 };
	log_set_writer(count, fixture);
	if (ckpt_dir_open(&fixture->dir, path, &err) < 0
		|| owner_claim(&fixture->dir, &fixture->owner, NULL, NULL, 5, &err) < 0)
		fail_msg("%s", err.text);
}

void ckpt_fixture_close(struct ckpt_fixture *fixture)
{
	for (int i = 0; i < CKPT_FIXTURE_PARTS; i++)
		free(fixture->text[i]);
	ckpt_dir_close(&fixture->dir);
	log_set_writer(NULL, NULL);
}

/* Even steps have what version 2 of the format adds. */
static void fill(struct ckpt_sample *sample, int64_t step)
{
	ckpt_sample_fill(sample, step);
	if (step % 2 == 0)
		ckpt_sample_add_state(sample);
}

void ckpt_fixture_save(struct ckpt_fixture *fixture, int64_t step)
{
	struct ckpt_sample sample;
	struct err err;
	fill(&sample, step);
	if (ckpt_save(&fixture->dir, &sample.snapshot, fixture->owner.token, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

void ckpt_fixture_save_part(struct ckpt_fixture *fixture, int64_t step, int part, int parts,
	uint64_t shard_size)
{
	struct ckpt_sample sample;
	struct save_result saved;
	struct err err;
	fill(&sample, step);
	ckpt_sample_part(&sample, part, parts, shard_size);
	free(fixture->text[part]);
	if (ckpt_save_part(&fixture->dir, &sample.snapshot, fixture->owner.token, NULL,
			&fixture->text[part], &fixture->size[part], &saved, &err)
		< 0)
		fail_msg("part %d of %d: %s", part, parts, err.text);
	assert_true(saved.bytes >= fixture->size[part] && !saved.taken);
}

void ckpt_fixture_save_parts(struct ckpt_fixture *fixture, int64_t step, int parts,
	uint64_t shard_size)
{
	fixture->parts = parts;
	for (int part = parts; part-- > 0;)
		ckpt_fixture_save_part(fixture, step, part, parts, shard_size);
}

char *ckpt_fixture_join(const struct ckpt_fixture *fixture, int64_t step, size_t *size)
{
	struct err err;
	char *text;
	struct manifest *manifest = ckpt_part_join((char *const *)fixture->text, fixture->size,
		fixture->parts, step, fixture->owner.token, &err);
	if (!manifest || manifest_encode(manifest, &text, size, &err) < 0)
		fail_msg("%s", err.text);
	manifest_destroy(manifest);
	return text;
}

void ckpt_fixture_newest_is(struct ckpt_fixture *fixture, int64_t step)
{
	struct ckpt *ckpt;
	struct err err;
	int found = ckpt_open_newest(&fixture->dir, CKPT_FIXTURE_PATIENCE, &ckpt, &err);
	if (found < 0)
		fail_msg("%s", err.text);
	assert_int_equal(found, step >= 0);
	if (!found)
		return;
	if (ckpt_sample_check(ckpt, step, &err) < 0)
		fail_msg("%s", err.text);
	ckpt_close(ckpt);
}

bool ckpt_fixture_has(const struct ckpt_fixture *fixture, const char *name)
{
	struct stat st;
	return fstatat(fixture->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void ckpt_fixture_steps_are(const struct ckpt_fixture *fixture, const int64_t *want, size_t count)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t found;
	assert_int_equal(ckpt_dir_steps(&fixture->dir, &steps, &found, NULL), 0);
	assert_int_equal(found, count);
	assert_memory_equal(steps, want, count * sizeof *want);
}

char *ckpt_fixture_in_step(int64_t step, const char *name)
{
	static char path[400];
	char folder[CKPT_STEP_NAME_SIZE];
	snprintf(path, sizeof path, "%s/%s", ckpt_step_name(step, folder), name);
	return path;
}

void ckpt_fixture_flip_bit(const struct ckpt_fixture *fixture, const char *path, off_t byte,
	int bit)
{
	char c;
	AUTO_CLOSE int fd = openat(fixture->dir.fd, path, O_RDWR);
	assert_int_equal(pread(fd, &c, 1, byte), 1);
	c = (char)(c ^ 1 << bit);
	assert_int_equal(pwrite(fd, &c, 1, byte), 1);
}
