/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_save: whatever the parts and the size of the shards, the same state comes back; a save of several writers is
 * committed by whoever holds all its parts, with the same bytes, and by nobody else. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/ckpt_part.h"
#include "checkpoint/ckpt_save.h"
#include "checkpoint/owner.h"
#include "common/auto.h"
#include "common/io.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/files.h"
#include "tests/unit/quiet.h"

#define IO_TIMEOUT 0.2
#define PARTS_MAX 5
#define OTHER_TOKEN "ffffffffffffffffffffffffffffffff"

/* A checkpoint directory of its own, owned by this process, and the texts of a save's parts. */
struct run {
	struct ckpt_dir dir;
	struct owner owner;
	int parts;
	char *text[PARTS_MAX];
	size_t size[PARTS_MAX];
};

static void run_open(struct run *run, const char *name)
{
	struct err err;
	memset(run, 0, sizeof *run);
	if (ckpt_dir_open(&run->dir, files_path(name), &err) < 0 ||
		owner_claim(&run->dir, &run->owner, NULL, NULL, 5, &err) < 0)
		fail_msg("%s", err.text);
}

static void forget_parts(struct run *run)
{
	for (int i = 0; i < PARTS_MAX; i++) {
		free(run->text[i]);
		run->text[i] = NULL;
	}
}

static void run_close(struct run *run)
{
	forget_parts(run);
	ckpt_dir_close(&run->dir);
}

static void save_part(struct run *run, int64_t step, int part, int parts, uint64_t shard_size)
{
	struct ckpt_sample sample;
	struct ckpt_saved saved;
	struct err err;
	ckpt_sample_fill(&sample, step);
	ckpt_sample_part(&sample, part, parts, shard_size);
	free(run->text[part]);
	if (ckpt_save_part(&run->dir, &sample.snapshot, run->owner.token, NULL, &run->text[part], &run->size[part], &saved,
		&err) < 0)
		fail_msg("part %d of %d: %s", part, parts, err.text);
	assert_true(saved.bytes >= run->size[part] && !saved.taken);
}

static void save_parts(struct run *run, int64_t step, int parts, uint64_t shard_size)
{
	run->parts = parts;
	for (int part = parts; part-- > 0;)
		save_part(run, step, part, parts, shard_size);
}

static int commit(struct run *run, int64_t step, struct ckpt_saved *saved, struct err *err)
{
	return ckpt_commit(&run->dir, step, run->owner.token, run->parts, run->text, run->size, saved, err);
}

static bool exists(struct run *run, const char *name)
{
	struct stat st;
	return fstatat(run->dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The path of `name` in the hidden folder of a step. */
static const char *hidden(struct run *run, int64_t step, const char *name)
{
	static char paths[4][400];
	static int next;
	char *path = paths[next++ % 4], folder[CKPT_STEP_NAME_SIZE];
	snprintf(path, sizeof paths[0], ".saving-%s-%s%s%s", ckpt_step_name(step, folder), run->owner.token, *name ? "/" : "",
		name);
	return path;
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

/* The index names for each tensor a file of the manifest, and its total is that of the tensors. */
static void index_is_right(struct run *run, int64_t step)
{
	struct ckpt *ckpt;
	char path[100], folder[CKPT_STEP_NAME_SIZE];
	AUTO_FREE char *text = NULL;
	size_t size;
	json_int_t total = 0;
	snprintf(path, sizeof path, "%s/model.safetensors.index.json", ckpt_step_name(step, folder));
	assert_int_equal(io_read_file(run->dir.fd, path, 1 << 20, &text, &size, NULL), 0);
	json_t *index = json_loads(text, 0, NULL), *map = json_object_get(index, "weight_map");
	assert_int_equal(ckpt_open(&run->dir, step, IO_TIMEOUT, &ckpt, NULL), 0);
	assert_int_equal(json_object_size(map), ckpt_tensor_count(ckpt));
	for (size_t i = 0; i < ckpt_tensor_count(ckpt); i++) {
		const struct safetensors_tensor *tensor = ckpt_tensor_at(ckpt, i);
		const char *name = json_string_value(json_object_get(map, tensor->name));
		const struct manifest_file *file = manifest_find(ckpt_manifest(ckpt), name);
		assert_non_null(file);
		assert_int_equal(file->role, MANIFEST_MODEL);
		snprintf(path, sizeof path, "%s/%s", folder, name);
		AUTO_FREE char *bytes = NULL;
		assert_int_equal(io_read_file(run->dir.fd, path, 1 << 20, &bytes, &size, NULL), 0);
		struct safetensors *header = safetensors_parse(bytes, size, size, NULL);
		assert_non_null(safetensors_find(header, tensor->name));
		safetensors_destroy(header);
		total += (json_int_t)(tensor->end - tensor->begin);
	}
	assert_int_equal(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")), total);
	ckpt_close(ckpt);
	json_decref(index);
}

static size_t files_of(struct run *run, int64_t step, enum manifest_role role)
{
	struct ckpt *ckpt;
	size_t count = 0;
	assert_int_equal(ckpt_open(&run->dir, step, IO_TIMEOUT, &ckpt, NULL), 0);
	const struct manifest *manifest = ckpt_manifest(ckpt);
	for (size_t i = 0; i < manifest->file_count; i++)
		count += manifest->files[i].role == role;
	ckpt_close(ckpt);
	return count;
}

static void any_number_of_parts_and_shards_holds_the_state(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 300, 100000 };
	struct run run;
	struct err err;
	struct ckpt_saved saved;
	run_open(&run, "parts");
	int64_t step = 0;
	for (int parts = 1; parts <= PARTS_MAX; parts++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			save_parts(&run, ++step, parts, sizes[i]);
			newest_is(&run, step - 1 == 0 ? -1 : step - 1);
			if (commit(&run, step, &saved, &err) < 0)
				fail_msg("%s", err.text);
			assert_false(saved.taken);
			assert_false(exists(&run, hidden(&run, step, "")));
			newest_is(&run, step);
			index_is_right(&run, step);
			/* Three tensors and three slices: a file each where shards are tiny or writers many. */
			size_t most = sizes[i] == 1 || parts > 3 ? 3 : (size_t)parts;
			if (sizes[i] != 300)
				assert_int_equal(files_of(&run, step, MANIFEST_MODEL), most);
			if (sizes[i] != 300)
				assert_int_equal(files_of(&run, step, MANIFEST_OPTIMIZER), most);
		}
	/* Of 12 bytes an element the slices have 180, 60 and 240, the tensors 36, 420 and 60. */
	struct ckpt_sample sample;
	ckpt_sample_fill(&sample, 99);
	sample.snapshot.shard_size = 300;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, &saved, &err), 0);
	newest_is(&run, 99);
	assert_int_equal(files_of(&run, 99, MANIFEST_MODEL), 3);
	assert_int_equal(files_of(&run, 99, MANIFEST_OPTIMIZER), 2);
	run_close(&run);
}

/* The manifest that follows from the parts. */
static char *joined(struct run *run, int64_t step, size_t *size)
{
	struct err err;
	char *text;
	struct manifest *manifest = ckpt_part_join(run->text, run->size, run->parts, step, run->owner.token, &err);
	if (!manifest || manifest_encode(manifest, &text, size, &err) < 0)
		fail_msg("%s", err.text);
	manifest_destroy(manifest);
	return text;
}

static void whoever_commits_writes_the_same_bytes(void **state)
{
	struct run run;
	struct err err;
	run_open(&run, "same");
	for (int64_t step = 1; step <= 2; step++) {
		char path[100], folder[CKPT_STEP_NAME_SIZE];
		size_t size, want_size;
		save_parts(&run, step, 3, 0);
		AUTO_FREE char *want = joined(&run, step, &want_size), *found = NULL;
		if (step == 1)
			assert_int_equal(commit(&run, step, NULL, &err), 0);
		else
			assert_int_equal(ckpt_finish(&run.dir, run.owner.token, IO_TIMEOUT, &err), 1);
		snprintf(path, sizeof path, "%s/manifest.json", ckpt_step_name(step, folder));
		assert_int_equal(io_read_file(run.dir.fd, path, 1 << 20, &found, &size, NULL), 0);
		assert_int_equal(size, want_size);
		assert_memory_equal(found, want, size);
		/* Who comes second finds it done. */
		if (commit(&run, step, NULL, &err) < 0)
			fail_msg("%s", err.text);
		newest_is(&run, step);
	}
	run_close(&run);
}

static void flip_bit(struct run *run, const char *path, off_t byte)
{
	char c;
	int fd = openat(run->dir.fd, path, O_RDWR);
	assert_int_equal(pread(fd, &c, 1, byte), 1);
	c ^= 1;
	assert_int_equal(pwrite(fd, &c, 1, byte), 1);
	close(fd);
}

/* After `step` was saved in three parts and something was done to it: nothing is committed, and clean removes it. */
static void is_not_finished(struct run *run, int64_t step, int64_t newest)
{
	struct err err;
	if (ckpt_finish(&run->dir, run->owner.token, IO_TIMEOUT, &err) != 0)
		fail_msg("finished, or: %s", err.text);
	newest_is(run, newest);
	assert_true(exists(run, hidden(run, step, "")));
	assert_int_equal(ckpt_discard(&run->dir, step, run->owner.token, &err), 0);
	assert_false(exists(run, hidden(run, step, "")));
}

static void what_is_not_whole_is_not_finished(void **state)
{
	static const char *const files[] = { "part-00002-of-00003.json", "model-00001-of-00003.safetensors",
		"optimizer-00003-of-00003.safetensors", "config.json" };
	struct run run;
	run_open(&run, "unfinished");
	assert_int_equal(ckpt_finish(&run.dir, run.owner.token, IO_TIMEOUT, NULL), 0);
	save_parts(&run, 4, 3, 0);
	assert_int_equal(commit(&run, 4, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		save_parts(&run, 5, 3, 0);
		assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, files[i]), 0), 0);
		is_not_finished(&run, 5, 4);
		save_parts(&run, 5, 3, 0);
		flip_bit(&run, hidden(&run, 5, files[i]), 10);
		is_not_finished(&run, 5, 4);
		/* What is only messages' word is not committed either. */
		save_parts(&run, 5, 3, 0);
		if (i > 0) {
			struct err err;
			assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, files[i]), 0), 0);
			assert_int_equal(commit(&run, 5, NULL, &err), -1);
			assert_int_equal(err.status, EXIT_LOST);
			assert_false(exists(&run, hidden(&run, 5, "")));
		}
	}
	/* One that is older than what is there. */
	save_parts(&run, 3, 3, 0);
	is_not_finished(&run, 3, 4);
	save_parts(&run, 4, 3, 0);
	is_not_finished(&run, 4, 4);
	run_close(&run);
}

/* Killed between its manifest and the rename. */
static void a_whole_save_of_one_writer_is_finished(void **state)
{
	struct run run;
	struct ckpt_sample sample;
	struct err err;
	run_open(&run, "whole");
	for (int64_t step = 1; step <= 3; step++) {
		char name[CKPT_STEP_NAME_SIZE];
		ckpt_sample_fill(&sample, step);
		assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), 0);
		if (step > 1)
			assert_int_equal(renameat(run.dir.fd, ckpt_step_name(step, name), run.dir.fd, hidden(&run, step, "")), 0);
	}
	newest_is(&run, 1);
	/* Another attempt finds them. The newest is enough. */
	assert_int_equal(owner_release(&run.dir, run.owner.token, &err), 0);
	struct owner next = { .attempt = 1 };
	assert_int_equal(owner_claim(&run.dir, &next, NULL, NULL, 5, &err), 0);
	assert_int_equal(ckpt_finish(&run.dir, run.owner.token, IO_TIMEOUT, &err), -1);
	assert_int_equal(ckpt_finish(&run.dir, next.token, IO_TIMEOUT, &err), 1);
	newest_is(&run, 3);
	assert_true(exists(&run, hidden(&run, 2, "")));
	assert_int_equal(ckpt_dir_clean(&run.dir, next.token, &err), 1);
	assert_false(exists(&run, hidden(&run, 2, "")));
	assert_int_equal(ckpt_finish(&run.dir, next.token, IO_TIMEOUT, &err), 0);
	run_close(&run);
}

static void part_refused(const char *text, size_t size, int64_t step, const char *token, int part, int parts)
{
	struct err err = { 0 };
	assert_int_equal(ckpt_part_check(text, size, step, token, part, parts, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_true(err.text[0]);
}

static void only_its_own_parts_are_taken(void **state)
{
	struct run run;
	struct err err;
	size_t size;
	run_open(&run, "check");
	save_parts(&run, 7, 2, 0);
	char *text = run.text[1];
	const char *token = run.owner.token;
	assert_int_equal(ckpt_part_check(text, run.size[1], 7, token, 1, 2, &err), 0);
	part_refused(text, run.size[1], 8, token, 1, 2);
	part_refused(text, run.size[1], 7, OTHER_TOKEN, 1, 2);
	part_refused(text, run.size[1], 7, token, 0, 2);
	part_refused(text, run.size[1], 7, token, 1, 3);
	part_refused("", 0, 7, token, 1, 2);
	for (size_t bit = 0; bit < 8 * run.size[1]; bit += 3) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		part_refused(text, run.size[1], 7, token, 1, 2);
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
	/* A manifest is no part, and a part no manifest. */
	AUTO_FREE char *manifest = joined(&run, 7, &size);
	part_refused(manifest, size, 7, token, 0, 1);
	assert_null(manifest_parse(text, run.size[1], NULL, &err));
	/* Two times the same part. */
	char *texts[] = { run.text[0], run.text[0] };
	size_t sizes[] = { run.size[0], run.size[0] };
	assert_null(ckpt_part_join(texts, sizes, 2, 7, token, &err));
	assert_null(ckpt_part_join(texts, sizes, 0, 7, token, &err));
	assert_int_equal(ckpt_discard(&run.dir, 7, token, &err), 0);
	run_close(&run);
}

/* The text of part 2 with the number behind `member` changed, or a file's name. */
static char *altered(const struct run *run, const char *from, const char *to, size_t *size)
{
	char hex[HASH_HEX_SIZE], *at = strstr(run->text[1], from);
	assert_non_null(at);
	char *out = malloc(run->size[1] + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - run->text[1]), run->text[1], to, at + strlen(from));
	char *self = strstr(out, ",\n \"self\"");
	memcpy(self + strlen(",\n \"self\": \""), hash_hex(hash_bytes(out, (size_t)(self - out)), hex), HASH_HEX_SIZE - 1);
	*size = strlen(out);
	return out;
}

static void parts_of_different_saves_are_not_joined(void **state)
{
	static const char *const changes[][3] = {
		{ "\"attempt\": 2", "\"attempt\": 3", "differ in their attempt" },
		{ "\"world_size\": 4", "\"world_size\": 8", "differ in their world_size" },
		{ "\"seed\": \"1", "\"seed\": \"", "differ in their seed" },
		{ "\"cursor\": 112", "\"cursor\": 113", "differ in their cursor" },
		{ "\"slots\": 8", "\"slots\": 4", "differ in their config" },
		{ "canonical", "native", "differ in their numerics" },
		{ "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors", "have a file" },
		{ "\"part\": 2", "\"part\": 3", "part is missing" },
	};
	struct run run;
	run_open(&run, "different");
	save_parts(&run, 7, 2, 0);
	for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
		struct err err;
		size_t sizes[] = { run.size[0], 0 };
		AUTO_FREE char *text = altered(&run, changes[i][0], changes[i][1], &sizes[1]);
		char *texts[] = { run.text[0], text };
		assert_null(ckpt_part_join(texts, sizes, 2, 7, run.owner.token, &err));
		assert_int_equal(err.status, EXIT_DATA);
		if (!strstr(err.text, changes[i][2]))
			fail_msg("\"%s\", not \"%s\"", err.text, changes[i][2]);
	}
	run_close(&run);
}

static void a_part_may_be_written_again(void **state)
{
	struct run run;
	struct ckpt_sample sample;
	char *text;
	size_t size;
	struct err err;
	run_open(&run, "again");
	save_parts(&run, 5, 3, 0);
	save_part(&run, 5, 1, 3, 0);
	/* Its own part file can't be replaced: the save of that part fails, and the others' files stay. */
	assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"), 0), 0);
	assert_int_equal(mkdirat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"), 0755), 0);
	ckpt_sample_fill(&sample, 5);
	ckpt_sample_part(&sample, 1, 3, 0);
	assert_int_equal(ckpt_save_part(&run.dir, &sample.snapshot, run.owner.token, NULL, &text, &size, NULL, &err), -1);
	assert_true(exists(&run, hidden(&run, 5, "part-00001-of-00003.json")));
	assert_true(exists(&run, hidden(&run, 5, "model-00001-of-00003.safetensors")));
	assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"), AT_REMOVEDIR), 0);
	save_part(&run, 5, 1, 3, 0);
	assert_int_equal(commit(&run, 5, NULL, &err), 0);
	newest_is(&run, 5);
	run_close(&run);
}

struct progress {
	struct run *run;
	uint64_t done, total;
	int calls;
	bool discard;
};

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct progress *seen = arg;
	assert_true(done > seen->done && done <= total);
	*seen = (struct progress){ seen->run, done, total, seen->calls + 1, seen->discard };
	if (!seen->discard || seen->calls > 1)
		return;
	/* Another process gives the save up, and begins the same step anew. */
	assert_int_equal(ckpt_discard(&seen->run->dir, 5, seen->run->owner.token, NULL), 0);
	assert_int_equal(mkdirat(seen->run->dir.fd, hidden(seen->run, 5, ""), 0755), 0);
}

static void a_part_of_a_save_that_was_given_up_is_not_durable(void **state)
{
	struct run run;
	struct ckpt_sample sample;
	struct progress seen = { .run = &run, .discard = true };
	struct ckpt_save_options options = { .progress = progress, .arg = &seen };
	char *text = NULL;
	size_t size;
	struct err err;
	run_open(&run, "given-up");
	ckpt_sample_fill(&sample, 5);
	ckpt_sample_part(&sample, 0, 2, 0);
	assert_int_equal(ckpt_save_part(&run.dir, &sample.snapshot, run.owner.token, &options, &text, &size, NULL, &err), -1);
	assert_int_equal(seen.calls > 0, 1);
	assert_null(text);
	run_close(&run);
}

static void progress_reaches_the_total(void **state)
{
	struct run run;
	struct ckpt_sample sample;
	struct ckpt_saved saved;
	struct progress seen = { .run = &run };
	struct ckpt_save_options options = { .progress = progress, .arg = &seen };
	run_open(&run, "progress");
	ckpt_sample_fill(&sample, 1);
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, &options, &saved, NULL), 0);
	assert_true(seen.calls > 0 && seen.done == seen.total && seen.total <= saved.bytes);
	run_close(&run);
}

static void refused(struct run *run, const struct snapshot *snapshot, const char *why)
{
	struct err err;
	char *text;
	size_t size;
	assert_int_equal(ckpt_save_part(&run->dir, snapshot, run->owner.token, NULL, &text, &size, NULL, &err), -1);
	if (!strstr(err.text, why))
		fail_msg("\"%s\", not \"%s\"", err.text, why);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_false(exists(run, hidden(run, 1, "")));
}

static void wrong_snapshots_are_refused(void **state)
{
	struct run run;
	struct ckpt_sample sample;
	struct err err;
	run_open(&run, "wrong");
	ckpt_sample_fill(&sample, 1);
	ckpt_sample_part(&sample, 0, 2, 0);
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	assert_non_null(strstr(err.text, "2 parts can't be saved as one"));
	sample.snapshot.part = 1;
	refused(&run, &sample.snapshot, "has no data");
	sample.snapshot.part = 2;
	refused(&run, &sample.snapshot, "part 2 of 2");
	sample.snapshot.part = 0;
	sample.tensors[2].writer = 2;
	refused(&run, &sample.snapshot, "writer 2 of 2");
	sample.tensors[2].writer = 1;
	sample.slices[0].writer = 1;
	refused(&run, &sample.snapshot, "behind writer 1");
	ckpt_sample_fill(&sample, 1);
	sample.tensors[1].name = sample.tensors[0].name;
	sample.snapshot.shard_size = 1;
	refused(&run, &sample.snapshot, "two tensors");
	ckpt_sample_fill(&sample, 1);
	sample.slices[0].state[1] = NULL;
	refused(&run, &sample.snapshot, "has no data");
	newest_is(&run, -1);
	run_close(&run);
}

static void names_of_parts(void **state)
{
	static const char *const wrong[] = { "", "part-00001-of-00002", "part-1-of-2.json", "part-00003-of-00002.json",
		"part-00000-of-00002.json", "part-00001-of-00002.json.n", ".part-00001-of-00002.json", "part--0001-of-00002.json",
		"part-000001-of-00002.json", "part-99999999999-of-99999999999.json" };
	char name[CKPT_PART_NAME_SIZE];
	assert_string_equal(ckpt_part_name(1, 4, name), "part-00002-of-00004.json");
	assert_int_equal(ckpt_part_count(name), 4);
	assert_int_equal(ckpt_part_count(ckpt_part_name(0, 100000, name)), 100000);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_int_equal(ckpt_part_count(wrong[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_parts_and_shards_holds_the_state),
		cmocka_unit_test(whoever_commits_writes_the_same_bytes),
		cmocka_unit_test(what_is_not_whole_is_not_finished),
		cmocka_unit_test(a_whole_save_of_one_writer_is_finished),
		cmocka_unit_test(only_its_own_parts_are_taken),
		cmocka_unit_test(parts_of_different_saves_are_not_joined),
		cmocka_unit_test(a_part_may_be_written_again),
		cmocka_unit_test(a_part_of_a_save_that_was_given_up_is_not_durable),
		cmocka_unit_test(progress_reaches_the_total),
		cmocka_unit_test(wrong_snapshots_are_refused),
		cmocka_unit_test(names_of_parts),
	};
	quiet_log();
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
