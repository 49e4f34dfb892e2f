/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_dir, ckpt_save and ckpt: what is saved is read back bit for bit, and what was damaged, cut short, left unfinished
 * or can't be had is told apart. */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/owner.h"
#include "checkpoint/pin.h"
#include "checkpoint/retention.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/log.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/files.h"

#define IO_TIMEOUT 0.2

static const char *const shard_names[] = { "manifest.json", "config.json", "model.safetensors.index.json",
	"model-00001-of-00001.safetensors", "optimizer-00001-of-00001.safetensors" };

#define SHARDS (sizeof shard_names / sizeof shard_names[0])

static int errors_logged;

static void count_errors(void *arg, enum log_level level, const char *line)
{
	errors_logged += level == LOG_LEVEL_ERROR;
}

/* A checkpoint directory of its own, owned by this process. */
struct run {
	struct ckpt_dir dir;
	struct owner owner;
};

static void run_open(struct run *run, const char *name)
{
	struct err err;
	memset(run, 0, sizeof *run);
	if (ckpt_dir_open(&run->dir, files_path(name), &err) < 0 ||
		owner_claim(&run->dir, &run->owner, NULL, NULL, 5, &err) < 0)
		fail_msg("%s", err.text);
	errors_logged = 0;
}

static void run_save(struct run *run, int64_t step)
{
	struct ckpt_sample sample;
	struct err err;
	ckpt_sample_fill(&sample, step);
	if (ckpt_save(&run->dir, &sample.snapshot, run->owner.token, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static void newest_is(struct run *run, int64_t step)
{
	struct ckpt *ckpt;
	struct err err;
	int found = ckpt_open_newest(&run->dir, IO_TIMEOUT, &ckpt, &err);
	if (found < 0)
		fail_msg("%s", err.text);
	assert_int_equal(found, step >= 0);
	if (!found)
		return;
	if (ckpt_sample_check(ckpt, step, &err) < 0)
		fail_msg("%s", err.text);
	ckpt_close(ckpt);
}

static bool exists(struct run *run, const char *name)
{
	struct stat st;
	return fstatat(run->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static char *in_step(int64_t step, const char *name)
{
	static char path[400];
	char folder[CKPT_STEP_NAME_SIZE];
	snprintf(path, sizeof path, "%s/%s", ckpt_step_name(step, folder), name);
	return path;
}

static void flip_bit(struct run *run, const char *path, off_t byte, int bit)
{
	char c;
	int fd = openat(run->dir.fd, path, O_RDWR);
	assert_int_equal(pread(fd, &c, 1, byte), 1);
	c = (char)(c ^ 1 << bit);
	assert_int_equal(pwrite(fd, &c, 1, byte), 1);
	close(fd);
}

static void saved_state_comes_back(void **state)
{
	struct run run;
	AUTO_FREE char *latest = NULL;
	size_t size;
	run_open(&run, "back/with/parents");
	newest_is(&run, -1);
	run_save(&run, 0);
	newest_is(&run, 0);
	run_save(&run, 99999999);
	run_save(&run, 100000000);
	newest_is(&run, 100000000);
	assert_int_equal(io_read_file(run.dir.fd, "latest", 100, &latest, &size, NULL), 0);
	assert_string_equal(latest, "step-100000000\n");
	assert_false(exists(&run, ".saving-step-00000000"));
	assert_int_equal(errors_logged, 0);
	ckpt_dir_close(&run.dir);
}

static void unknown_ranges_are_refused(void **state)
{
	struct run run;
	struct ckpt *ckpt;
	float out[64];
	run_open(&run, "ranges");
	run_save(&run, 1);
	assert_int_equal(ckpt_open(&run.dir, 1, IO_TIMEOUT, &ckpt, NULL), 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "none", 0, 1, out, NULL), -1);
	assert_int_equal(ckpt_read_tensor(ckpt, "transformer.wte.weight", 35, 1, out, NULL), -1);
	assert_int_equal(ckpt_read_tensor(ckpt, "transformer.wte.weight", 1, UINT64_MAX, out, NULL), -1);
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "transformer.wte.weight", 34, 2, out, NULL), -1);
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "transformer.h.0.attn.c_attn.bias", 0, 1, out, NULL), -1);
	ckpt_close(ckpt);
	ckpt_dir_close(&run.dir);
}

/* A tensor of more than two chunks, read in ranges that begin and end on both sides of the chunks' borders. */
static void ranges_across_chunks_are_right(void **state)
{
	struct run run;
	struct err err;
	struct ckpt *ckpt;
	struct ckpt_sample sample;
	const uint64_t count = 2 * (MANIFEST_CHUNK / 4) + 12345, chunk = MANIFEST_CHUNK / 4;
	AUTO_FREE uint32_t *values = malloc(count * 4), *out = malloc(count * 4);
	for (uint64_t i = 0; i < count; i++)
		values[i] = (uint32_t)i * 2654435761u;
	ckpt_sample_fill(&sample, 1);
	sample.tensors[1] = (struct snapshot_tensor){ "big", SAFETENSORS_U32, 1, { (int64_t)count }, 0, values };
	sample.snapshot.slice_count = 0;
	run_open(&run, "chunks");
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), 0);
	assert_int_equal(ckpt_open_newest(&run.dir, IO_TIMEOUT, &ckpt, &err), 1);
	assert_int_equal(ckpt_manifest(ckpt)->files[0].chunk_count, 3);
	const uint64_t edges[] = { 0, 1, chunk - 1100, chunk - 1024, chunk - 1023, chunk, 2 * chunk - 1024, 2 * chunk, count };
	for (size_t a = 0; a < sizeof edges / sizeof edges[0]; a++)
		for (size_t b = a; b < sizeof edges / sizeof edges[0]; b++) {
			memset(out, 0, count * 4);
			assert_int_equal(ckpt_read_tensor(ckpt, "big", edges[a], edges[b] - edges[a], out, &err), 0);
			assert_memory_equal(out, values + edges[a], (edges[b] - edges[a]) * 4);
		}
	/* One bit of the middle chunk: what lies in the others may still be read, what lies there is not. */
	flip_bit(&run, in_step(1, shard_names[3]), MANIFEST_CHUNK + 4096, 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", 0, 100, out, &err), 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", chunk, 100, out, &err), CKPT_DAMAGED);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", 0, count, out, &err), CKPT_DAMAGED);
	ckpt_close(ckpt);
	ckpt_dir_close(&run.dir);
}

static void damage_anywhere_is_set_aside(void **state)
{
	struct run run;
	run_open(&run, "damage");
	run_save(&run, 1);
	for (size_t f = 0; f < SHARDS; f++)
		for (int place = 0; place < 3; place++) {
			struct stat st;
			char aside[64];
			run_save(&run, 2);
			assert_int_equal(fstatat(run.dir.fd, in_step(2, shard_names[f]), &st, 0), 0);
			flip_bit(&run, in_step(2, shard_names[f]), place * (st.st_size - 1) / 2, place);
			errors_logged = 0;
			newest_is(&run, 1);
			assert_int_equal(errors_logged, 1);
			assert_false(exists(&run, "step-00000002"));
			snprintf(aside, sizeof aside, "step-00000002.damaged-%d", (int)f * 3 + place + 1);
			assert_true(exists(&run, aside));
		}
	ckpt_dir_close(&run.dir);
}

static void what_is_short_long_or_missing_is_set_aside(void **state)
{
	struct run run;
	run_open(&run, "short");
	run_save(&run, 1);
	for (size_t f = 0; f < SHARDS; f++) {
		struct stat st;
		const off_t changes[] = { -1, 1, -1000000 };
		for (int c = 0; c < 4; c++) {
			run_save(&run, 2);
			char *path = in_step(2, shard_names[f]);
			int fd = openat(run.dir.fd, path, O_RDWR);
			assert_int_equal(fstat(fd, &st), 0);
			if (c == 3)
				assert_int_equal(unlinkat(run.dir.fd, path, 0), 0);
			else
				assert_int_equal(ftruncate(fd, st.st_size + changes[c] < 0 ? 0 : st.st_size + changes[c]), 0);
			close(fd);
			newest_is(&run, 1);
			assert_false(exists(&run, "step-00000002"));
		}
	}
	/* Nothing valid is left: a fresh start, and both folders are kept. */
	flip_bit(&run, in_step(1, shard_names[3]), 4100, 1);
	newest_is(&run, -1);
	assert_true(exists(&run, "step-00000001.damaged-1"));
	ckpt_dir_close(&run.dir);
}

/* A manifest that hashes well but stands in the wrong folder. */
static void a_moved_checkpoint_is_not_another_step(void **state)
{
	struct run run;
	run_open(&run, "moved");
	run_save(&run, 1);
	run_save(&run, 2);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, "step-00000003"), 0);
	newest_is(&run, 1);
	ckpt_dir_close(&run.dir);
}

static void other_names_are_ignored(void **state)
{
	static const char *const names[] = { ".saving-step-00000009-ab", "step-9", "step-00000009x", "step--0000009",
		"step-000000009", "step-00000009.damaged-1", "STEP-00000009", "latest.d" };
	struct run run;
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	run_open(&run, "names");
	run_save(&run, 1);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		assert_int_equal(ckpt_step_of(names[i]), -1);
		assert_int_equal(mkdirat(run.dir.fd, names[i], 0755), 0);
	}
	newest_is(&run, 1);
	assert_int_equal(ckpt_dir_steps(&run.dir, &steps, &count, NULL), 0);
	assert_int_equal(count, 1);
	assert_int_equal(ckpt_step_of("step-123456789"), 123456789);
	ckpt_dir_close(&run.dir);
}

static void leftovers_of_others_are_removed(void **state)
{
	struct run run;
	char own[100];
	run_open(&run, "leftovers");
	run_save(&run, 1);
	snprintf(own, sizeof own, ".saving-step-00000002-%s", run.owner.token);
	assert_int_equal(mkdirat(run.dir.fd, own, 0755), 0);
	assert_int_equal(mkdirat(run.dir.fd, ".saving-step-00000002-00", 0755), 0);
	close(openat(run.dir.fd, ".saving-step-00000002-00/manifest.json", O_CREAT | O_WRONLY, 0644));
	close(openat(run.dir.fd, ".saving-step-00000002-00/model", O_CREAT | O_WRONLY, 0644));
	assert_int_equal(mkdirat(run.dir.fd, ".removing-step-00000001-00", 0755), 0);
	close(openat(run.dir.fd, ".latest.n1.5.0", O_CREAT | O_WRONLY, 0644));
	assert_int_equal(ckpt_dir_clean(&run.dir, run.owner.token, NULL), 3);
	assert_true(exists(&run, own));
	assert_false(exists(&run, ".saving-step-00000002-00"));
	assert_false(exists(&run, ".removing-step-00000001-00"));
	newest_is(&run, 1);
	ckpt_dir_close(&run.dir);
}

static void a_taken_name_keeps_what_has_it(void **state)
{
	struct run run;
	struct err err;
	struct ckpt_saved saved;
	struct ckpt_sample sample;
	run_open(&run, "taken");
	run_save(&run, 4);
	ckpt_sample_fill(&sample, 4);
	sample.matrix[0] = 123;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, &saved, &err), 0);
	assert_true(saved.taken);
	newest_is(&run, 4);
	/* One that does not verify has no claim to the name. */
	flip_bit(&run, in_step(4, shard_names[3]), 4100, 1);
	run_save(&run, 4);
	newest_is(&run, 4);
	assert_true(exists(&run, "step-00000004.damaged-1"));
	ckpt_dir_close(&run.dir);
}

static void a_newer_format_is_refused_not_set_aside(void **state)
{
	struct run run;
	struct err err;
	struct ckpt *ckpt;
	AUTO_FREE char *text = NULL;
	size_t size;
	char hex[HASH_HEX_SIZE];
	run_open(&run, "newer");
	run_save(&run, 1);
	run_save(&run, 2);
	char *path = in_step(2, "manifest.json");
	assert_int_equal(io_read_file(run.dir.fd, path, 1 << 20, &text, &size, NULL), 0);
	strstr(text, "\"version\": 1")[11] = '2';
	char *self = strstr(text, ",\n \"self\"");
	hash_hex(hash_bytes(text, (size_t)(self - text)), hex);
	memcpy(self + strlen(",\n \"self\": \""), hex, HASH_HEX_SIZE - 1);
	int fd = openat(run.dir.fd, path, O_WRONLY | O_TRUNC);
	assert_int_equal(io_write_full(fd, text, size), 0);
	close(fd);
	assert_int_equal(ckpt_open_newest(&run.dir, IO_TIMEOUT, &ckpt, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "newer Muster"));
	assert_true(exists(&run, "step-00000002"));
	ckpt_dir_close(&run.dir);
}

static void a_save_that_is_not_the_owners_leaves_nothing(void **state)
{
	struct run run;
	struct err err;
	struct ckpt_sample sample;
	run_open(&run, "foreign");
	run_save(&run, 1);
	ckpt_sample_fill(&sample, 2);
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, "ffffffffffffffffffffffffffffffff", NULL, NULL, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(strstr(err.text, "another attempt owns"));
	assert_false(exists(&run, ".saving-step-00000002-ffffffffffffffffffffffffffffffff"));
	assert_int_equal(ckpt_dir_remove(&run.dir, 1, "ffffffffffffffffffffffffffffffff", &err), -1);
	newest_is(&run, 1);
	ckpt_dir_close(&run.dir);
}

static void wrong_snapshots_are_refused(void **state)
{
	struct run run;
	struct err err;
	struct ckpt_sample sample;
	run_open(&run, "wrong");
	ckpt_sample_fill(&sample, 1);
	sample.snapshot.config_json = "{\"identity\": {}}";
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	sample.snapshot.config_json = "{";
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	ckpt_sample_fill(&sample, 1);
	sample.tensors[0].name = sample.tensors[1].name;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	newest_is(&run, -1);
	ckpt_dir_close(&run.dir);
}

static void a_directory_that_cannot_be_used_is_told_of(void **state)
{
	struct ckpt_dir dir;
	struct err err;
	files_write("plain", "x", 1);
	assert_int_equal(ckpt_dir_open(&dir, files_path("plain/run"), &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "give a directory"));
	assert_int_equal(ckpt_dir_open(&dir, "/proc/nowhere", &err), -1);
	assert_int_equal(ckpt_dir_open(&dir, "", &err), -1);
	assert_int_equal(ckpt_dir_open(&dir, "/dev/full/run", &err), -1);
	assert_int_equal(ckpt_dir_open(&dir, files_path("slash//es/"), &err), 0);
	ckpt_dir_close(&dir);
}

static void retention_removes_folders(void **state)
{
	struct run run;
	struct retention policy = { .keep_last = 2, .keep_every = 4 };
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	run_open(&run, "retain");
	for (int64_t step = 1; step <= 8; step++)
		run_save(&run, step);
	assert_int_equal(ckpt_dir_retain(&run.dir, &policy, run.owner.token, NULL), 0);
	assert_int_equal(ckpt_dir_steps(&run.dir, &steps, &count, NULL), 0);
	assert_int_equal(count, 3);
	assert_int_equal(steps[0], 4);
	assert_int_equal(steps[1], 7);
	assert_int_equal(ckpt_dir_clean(&run.dir, "", NULL), -1);
	newest_is(&run, 8);
	ckpt_dir_close(&run.dir);
}

static void save_with_loss(struct run *run, int64_t step, double validation_loss)
{
	struct ckpt_sample sample;
	struct err err;
	ckpt_sample_fill(&sample, step);
	sample.snapshot.validation_loss = validation_loss;
	if (ckpt_save(&run->dir, &sample.snapshot, run->owner.token, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static void steps_are(struct run *run, const int64_t *want, size_t count)
{
	AUTO_FREE int64_t *steps = NULL;
	size_t found;
	assert_int_equal(ckpt_dir_steps(&run->dir, &steps, &found, NULL), 0);
	assert_int_equal(found, count);
	assert_memory_equal(steps, want, count * sizeof *want);
}

static void the_best_and_the_pinned_stay(void **state)
{
	struct run run;
	struct err err;
	struct retention policy = { .keep_last = 2, .keep_best = 1 };
	run_open(&run, "best");
	save_with_loss(&run, 1, NAN);
	save_with_loss(&run, 2, 0.25);
	save_with_loss(&run, 3, 0.5);
	save_with_loss(&run, 4, NAN);
	save_with_loss(&run, 5, 1.5);
	save_with_loss(&run, 6, NAN);
	assert_int_equal(pin_set(&run.dir, 3, &err), 0);
	assert_int_equal(pin_set(&run.dir, 3, &err), 0);
	assert_int_equal(pin_is_set(run.dir.fd, "step-00000003", &err), 1);
	assert_int_equal(ckpt_dir_remove(&run.dir, 3, run.owner.token, &err), 1);
	assert_int_equal(ckpt_dir_retain(&run.dir, &policy, run.owner.token, NULL), 0);
	steps_are(&run, (int64_t[]){ 2, 3, 5, 6 }, 4);
	/* What can't be read now may be the best: it stays. */
	assert_int_equal(pin_clear(&run.dir, 3, &err), 0);
	assert_int_equal(pin_clear(&run.dir, 3, &err), 0);
	assert_int_equal(unlinkat(run.dir.fd, in_step(3, "manifest.json"), 0), 0);
	assert_int_equal(mkdirat(run.dir.fd, in_step(3, "manifest.json"), 0755), 0);
	assert_int_equal(ckpt_dir_retain(&run.dir, &policy, run.owner.token, NULL), 0);
	steps_are(&run, (int64_t[]){ 2, 3, 5, 6 }, 4);
	assert_int_equal(unlinkat(run.dir.fd, in_step(3, "manifest.json"), AT_REMOVEDIR), 0);
	assert_int_equal(ckpt_dir_retain(&run.dir, &policy, run.owner.token, NULL), 0);
	steps_are(&run, (int64_t[]){ 2, 5, 6 }, 3);
	assert_int_equal(pin_set(&run.dir, 4, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_int_equal(errors_logged, 0);
	ckpt_dir_close(&run.dir);
}

/* Killed behind the rename: the next owner brings a pinned checkpoint back, and removes one that is not. */
static void a_pinned_one_comes_back_from_a_killed_removal(void **state)
{
	struct run run;
	struct owner next = { .attempt = 1 };
	char away[2][100];
	run_open(&run, "killed");
	for (int64_t step = 1; step <= 3; step++)
		run_save(&run, step);
	assert_int_equal(pin_set(&run.dir, 2, NULL), 0);
	for (int i = 0; i < 2; i++) {
		char name[CKPT_STEP_NAME_SIZE];
		snprintf(away[i], sizeof away[i], ".removing-%s-%s", ckpt_step_name(i + 1, name), run.owner.token);
		assert_int_equal(renameat(run.dir.fd, name, run.dir.fd, away[i]), 0);
	}
	assert_int_equal(owner_release(&run.dir, run.owner.token, NULL), 0);
	assert_int_equal(owner_claim(&run.dir, &next, NULL, NULL, 5, NULL), 0);
	assert_int_equal(ckpt_dir_clean(&run.dir, next.token, NULL), 1);
	steps_are(&run, (int64_t[]){ 2, 3 }, 2);
	assert_false(exists(&run, away[0]) || exists(&run, away[1]));
	ckpt_dir_close(&run.dir);
}

/* It is still under the name that the folder of an unfinished save of the same step gets in order to be removed. */
static void a_pinned_one_is_not_removed_for_an_unfinished_save(void **state)
{
	struct run run;
	char saving[100], away[100];
	run_open(&run, "twice");
	run_save(&run, 2);
	run_save(&run, 3);
	assert_int_equal(pin_set(&run.dir, 2, NULL), 0);
	snprintf(away, sizeof away, ".removing-step-00000002-%s", run.owner.token);
	snprintf(saving, sizeof saving, ".saving-step-00000002-%s", run.owner.token);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, away), 0);
	assert_int_equal(mkdirat(run.dir.fd, saving, 0755), 0);
	assert_int_equal(ckpt_dir_take_away(&run.dir, saving, NULL), 1);
	assert_false(exists(&run, saving) || exists(&run, away));
	steps_are(&run, (int64_t[]){ 2, 3 }, 2);
	ckpt_dir_close(&run.dir);
}

/* What a disk refused to remove, behind step 3: of this owner only, nothing of a later save, and a pin is honoured. */
static void own_leftovers_are_tidied(void **state)
{
	static const char *const names[] = { ".saving-step-00000002-", ".saving-step-00000003-", ".removing-step-00000001-",
		".saving-step-00000004-", ".removing-step-00000009-" };
	struct run run;
	struct err err;
	char name[100];
	run_open(&run, "tidy");
	run_save(&run, 2);
	run_save(&run, 3);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s%s", names[i], run.owner.token);
		assert_int_equal(mkdirat(run.dir.fd, name, 0755), 0);
	}
	assert_int_equal(mkdirat(run.dir.fd, ".saving-step-00000002-00", 0755), 0);
	assert_int_equal(pin_set(&run.dir, 2, &err), 0);
	snprintf(name, sizeof name, ".removing-step-00000002-%s", run.owner.token);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, name), 0);
	ckpt_dir_tidy(&run.dir, 3, run.owner.token);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s%s", names[i], run.owner.token);
		assert_int_equal(exists(&run, name), i >= 3);
	}
	assert_true(exists(&run, ".saving-step-00000002-00"));
	steps_are(&run, (int64_t[]){ 2, 3 }, 2);
	ckpt_dir_close(&run.dir);
}

/* One thread pins and unpins, this one removes: what pin_set said to be pinned is there afterwards. */
struct race {
	struct ckpt_dir *dir;
	int pinned;
};

static void *pin_it(void *arg)
{
	struct race *race = arg;
	race->pinned = pin_set(race->dir, 1, NULL) == 0;
	return NULL;
}

static void a_pin_that_was_set_holds_against_a_removal_under_way(void **state)
{
	struct run run;
	int kept = 0;
	run_open(&run, "race");
	run_save(&run, 2); /* without a newer one it would stay */
	for (int i = 0; i < 60; i++) {
		struct race race = { .dir = &run.dir };
		pthread_t thread;
		if (!exists(&run, "step-00000001"))
			run_save(&run, 1);
		assert_int_equal(pin_clear(&run.dir, 1, NULL), 0);
		assert_int_equal(pthread_create(&thread, NULL, pin_it, &race), 0);
		usleep((useconds_t)i * 50);
		int removed = ckpt_dir_remove(&run.dir, 1, run.owner.token, NULL);
		pthread_join(thread, NULL);
		if (race.pinned)
			assert_true(removed != 0 && exists(&run, "step-00000001/pinned"));
		kept += race.pinned;
	}
	print_message("# %d of 60 pins came in time\n", kept);
	assert_true(kept > 0);
	ckpt_dir_close(&run.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(saved_state_comes_back),
		cmocka_unit_test(unknown_ranges_are_refused),
		cmocka_unit_test(ranges_across_chunks_are_right),
		cmocka_unit_test(damage_anywhere_is_set_aside),
		cmocka_unit_test(what_is_short_long_or_missing_is_set_aside),
		cmocka_unit_test(a_moved_checkpoint_is_not_another_step),
		cmocka_unit_test(other_names_are_ignored),
		cmocka_unit_test(leftovers_of_others_are_removed),
		cmocka_unit_test(a_pinned_one_is_not_removed_for_an_unfinished_save),
		cmocka_unit_test(own_leftovers_are_tidied),
		cmocka_unit_test(a_taken_name_keeps_what_has_it),
		cmocka_unit_test(a_newer_format_is_refused_not_set_aside),
		cmocka_unit_test(a_save_that_is_not_the_owners_leaves_nothing),
		cmocka_unit_test(wrong_snapshots_are_refused),
		cmocka_unit_test(a_directory_that_cannot_be_used_is_told_of),
		cmocka_unit_test(retention_removes_folders),
		cmocka_unit_test(the_best_and_the_pinned_stay),
		cmocka_unit_test(a_pinned_one_comes_back_from_a_killed_removal),
		cmocka_unit_test(a_pin_that_was_set_holds_against_a_removal_under_way),
	};
	log_set_writer(count_errors, NULL);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
