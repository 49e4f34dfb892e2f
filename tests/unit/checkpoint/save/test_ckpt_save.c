/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_save: whatever the parts and the size of the shards, the same state comes back; a save of
 * several writers is committed by the writer that holds all its parts, with the same bytes, and by
 * nobody else. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/directory/remove.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "common/io.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/checkpoint/save/ckpt_fixture.h"
#include "tests/unit/files.h"

static int commit(struct ckpt_fixture *run, int64_t step, struct save_result *saved,
	struct err *err)
{
	return ckpt_commit(&run->dir, step, run->owner.token, run->parts, run->text, run->size, saved,
		err);
}

/* The path of `name` in the hidden folder of a step. */
static const char *hidden(struct ckpt_fixture *run, int64_t step, const char *name)
{
	static char paths[4][400];
	static int next;
	char *path = paths[next++ % 4], folder[CKPT_STEP_NAME_SIZE];
	snprintf(path, sizeof paths[0], ".saving-%s-%s%s%s", ckpt_step_name(step, folder),
		run->owner.token, *name ? "/" : "", name);
	return path;
}

/* The index names for each tensor a file of the manifest, and its total is that of the tensors. */
static void index_is_right(struct ckpt_fixture *run, int64_t step)
{
	struct ckpt *ckpt;
	char path[100], folder[CKPT_STEP_NAME_SIZE];
	AUTO_FREE char *text = NULL;
	size_t size;
	json_int_t total = 0;
	snprintf(path, sizeof path, "%s/model.safetensors.index.json", ckpt_step_name(step, folder));
	assert_int_equal(io_read_file(run->dir.fd, path, 1 << 20, &text, &size, NULL), 0);
	json_t *index = json_loads(text, 0, NULL), *map = json_object_get(index, "weight_map");
	assert_int_equal(ckpt_open(&run->dir, step, CKPT_FIXTURE_PATIENCE, &ckpt, NULL), 0);
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
	assert_int_equal(json_integer_value(
						 json_object_get(json_object_get(index, "metadata"), "total_size")),
		total);
	ckpt_close(ckpt);
	json_decref(index);
}

static size_t files_of(struct ckpt_fixture *run, int64_t step, enum manifest_role role)
{
	struct ckpt *ckpt;
	size_t count = 0;
	assert_int_equal(ckpt_open(&run->dir, step, CKPT_FIXTURE_PATIENCE, &ckpt, NULL), 0);
	const struct manifest *manifest = ckpt_manifest(ckpt);
	for (size_t i = 0; i < manifest->file_count; i++)
		count += manifest->files[i].role == role;
	ckpt_close(ckpt);
	return count;
}

static void any_number_of_parts_and_shards_holds_the_state(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 300, 100000 };
	struct ckpt_fixture run;
	struct err err;
	struct save_result saved;
	ckpt_fixture_open(&run, files_path("parts"));
	int64_t step = 0;
	for (int parts = 1; parts <= CKPT_FIXTURE_PARTS; parts++)
		for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
			ckpt_fixture_save_parts(&run, ++step, parts, sizes[i]);
			ckpt_fixture_newest_is(&run, step - 1 == 0 ? -1 : step - 1);
			if (commit(&run, step, &saved, &err) < 0)
				fail_msg("%s", err.text);
			assert_false(saved.taken);
			assert_false(ckpt_fixture_has(&run, hidden(&run, step, "")));
			ckpt_fixture_newest_is(&run, step);
			index_is_right(&run, step);
			/* Three tensors and three slices: a file each where shards are tiny or writers many. */
			size_t most = sizes[i] == 1 || parts > 3 ? 3 : (size_t)parts;
			if (sizes[i] != 300)
				assert_int_equal(files_of(&run, step, MANIFEST_MODEL), most);
			if (sizes[i] != 300)
				assert_int_equal(files_of(&run, step, MANIFEST_OPTIMIZER), most);
			/* Of the state each of six, the empty one too, or as many as there are writers. */
			if (sizes[i] != 300)
				assert_int_equal(files_of(&run, step, MANIFEST_STATE),
					step % 2            ? 0
						: sizes[i] == 1 ? CKPT_SAMPLE_STATE
										: (size_t)parts);
			assert_int_equal(files_of(&run, step, MANIFEST_VALUES), step % 2 == 0);
		}
	/* Of 12 bytes an element the slices have 180, 60 and 240, the tensors 36, 420 and 60. */
	struct ckpt_sample sample;
	ckpt_sample_fill(&sample, 99);
	sample.snapshot.shard_size = 300;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, &saved, &err), 0);
	ckpt_fixture_newest_is(&run, 99);
	assert_int_equal(files_of(&run, 99, MANIFEST_MODEL), 3);
	assert_int_equal(files_of(&run, 99, MANIFEST_OPTIMIZER), 2);
	ckpt_fixture_close(&run);
}

static void whoever_commits_writes_the_same_bytes(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	ckpt_fixture_open(&run, files_path("same"));
	for (int64_t step = 1; step <= 2; step++) {
		char path[100], folder[CKPT_STEP_NAME_SIZE];
		size_t size, want_size;
		ckpt_fixture_save_parts(&run, step, 3, 0);
		AUTO_FREE char *want = ckpt_fixture_join(&run, step, &want_size), *found = NULL;
		if (step == 1)
			assert_int_equal(commit(&run, step, NULL, &err), 0);
		else
			assert_int_equal(ckpt_finish(&run.dir, run.owner.token, CKPT_FIXTURE_PATIENCE, &err),
				1);
		snprintf(path, sizeof path, "%s/manifest.json", ckpt_step_name(step, folder));
		assert_int_equal(io_read_file(run.dir.fd, path, 1 << 20, &found, &size, NULL), 0);
		assert_int_equal(size, want_size);
		assert_memory_equal(found, want, size);
		/* Who comes second finds it done. */
		if (commit(&run, step, NULL, &err) < 0)
			fail_msg("%s", err.text);
		ckpt_fixture_newest_is(&run, step);
	}
	ckpt_fixture_close(&run);
}

/* After `step` was saved in three parts and something was done to it: nothing is committed, and
 * clean removes it. */
static void is_not_finished(struct ckpt_fixture *run, int64_t step, int64_t newest)
{
	struct err err;
	if (ckpt_finish(&run->dir, run->owner.token, CKPT_FIXTURE_PATIENCE, &err) != 0)
		fail_msg("finished, or: %s", err.text);
	ckpt_fixture_newest_is(run, newest);
	assert_true(ckpt_fixture_has(run, hidden(run, step, "")));
	assert_int_equal(ckpt_discard(&run->dir, step, run->owner.token, &err), 0);
	assert_false(ckpt_fixture_has(run, hidden(run, step, "")));
}

static void what_is_not_whole_is_not_finished(void **state)
{
	static const char *const files[] = { "part-00002-of-00003.json",
		"model-00001-of-00003.safetensors", "optimizer-00003-of-00003.safetensors", "config.json" };
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("unfinished"));
	assert_int_equal(ckpt_finish(&run.dir, run.owner.token, CKPT_FIXTURE_PATIENCE, NULL), 0);
	ckpt_fixture_save_parts(&run, 4, 3, 0);
	assert_int_equal(commit(&run, 4, NULL, NULL), 0);
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		ckpt_fixture_save_parts(&run, 5, 3, 0);
		assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, files[i]), 0), 0);
		is_not_finished(&run, 5, 4);
		ckpt_fixture_save_parts(&run, 5, 3, 0);
		ckpt_fixture_flip_bit(&run, hidden(&run, 5, files[i]), 10, 0);
		is_not_finished(&run, 5, 4);
		/* What is only messages' word is not committed either. */
		ckpt_fixture_save_parts(&run, 5, 3, 0);
		if (i > 0) {
			struct err err;
			assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, files[i]), 0), 0);
			assert_int_equal(commit(&run, 5, NULL, &err), -1);
			assert_int_equal(err.status, EXIT_LOST);
			assert_false(ckpt_fixture_has(&run, hidden(&run, 5, "")));
		}
	}
	/* One that is older than what is there. */
	ckpt_fixture_save_parts(&run, 3, 3, 0);
	is_not_finished(&run, 3, 4);
	ckpt_fixture_save_parts(&run, 4, 3, 0);
	is_not_finished(&run, 4, 4);
	ckpt_fixture_close(&run);
}

/* Killed between its manifest and the rename. */
static void a_whole_save_of_one_writer_is_finished(void **state)
{
	struct ckpt_fixture run;
	struct ckpt_sample sample;
	struct err err;
	ckpt_fixture_open(&run, files_path("whole"));
	for (int64_t step = 1; step <= 3; step++) {
		char name[CKPT_STEP_NAME_SIZE];
		ckpt_sample_fill(&sample, step);
		assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err),
			0);
		if (step > 1)
			assert_int_equal(renameat(run.dir.fd, ckpt_step_name(step, name), run.dir.fd,
								 hidden(&run, step, "")),
				0);
	}
	ckpt_fixture_newest_is(&run, 1);
	/* Another attempt finds them. The newest is enough. */
	assert_int_equal(owner_release(&run.dir, run.owner.token, &err), 0);
	struct owner next = { .attempt = 1 };
	assert_int_equal(owner_claim(&run.dir, &next, NULL, NULL, 5, &err), 0);
	assert_int_equal(ckpt_finish(&run.dir, run.owner.token, CKPT_FIXTURE_PATIENCE, &err), -1);
	assert_int_equal(ckpt_finish(&run.dir, next.token, CKPT_FIXTURE_PATIENCE, &err), 1);
	ckpt_fixture_newest_is(&run, 3);
	assert_true(ckpt_fixture_has(&run, hidden(&run, 2, "")));
	assert_int_equal(remove_leftovers(&run.dir, next.token, &err), 1);
	assert_false(ckpt_fixture_has(&run, hidden(&run, 2, "")));
	assert_int_equal(ckpt_finish(&run.dir, next.token, CKPT_FIXTURE_PATIENCE, &err), 0);
	ckpt_fixture_close(&run);
}

static void a_part_may_be_written_again(void **state)
{
	struct ckpt_fixture run;
	struct ckpt_sample sample;
	char *text;
	size_t size;
	struct err err;
	ckpt_fixture_open(&run, files_path("again"));
	ckpt_fixture_save_parts(&run, 5, 3, 0);
	ckpt_fixture_save_part(&run, 5, 1, 3, 0);
	/* Its own part file can't be replaced: the save of that part fails, and the others' files stay.
	 */
	assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"), 0), 0);
	assert_int_equal(mkdirat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"), 0755), 0);
	ckpt_sample_fill(&sample, 5);
	ckpt_sample_part(&sample, 1, 3, 0);
	assert_int_equal(ckpt_save_part(&run.dir, &sample.snapshot, run.owner.token, NULL, &text, &size,
						 NULL, &err),
		-1);
	assert_true(ckpt_fixture_has(&run, hidden(&run, 5, "part-00001-of-00003.json")));
	assert_true(ckpt_fixture_has(&run, hidden(&run, 5, "model-00001-of-00003.safetensors")));
	assert_int_equal(unlinkat(run.dir.fd, hidden(&run, 5, "part-00002-of-00003.json"),
						 AT_REMOVEDIR),
		0);
	ckpt_fixture_save_part(&run, 5, 1, 3, 0);
	assert_int_equal(commit(&run, 5, NULL, &err), 0);
	ckpt_fixture_newest_is(&run, 5);
	ckpt_fixture_close(&run);
}

struct progress {
	struct ckpt_fixture *run;
	uint64_t done, total;
	int calls;
	bool discard;
};

static void progress(void *arg, uint64_t done, uint64_t total)
{
	struct progress *seen = arg;
	assert_true(done > seen->done && done <= total);
	*seen = (struct progress) { seen->run, done, total, seen->calls + 1, seen->discard };
	if (!seen->discard || seen->calls > 1)
		return;
	/* Another process gives the save up, and begins the same step anew. */
	assert_int_equal(ckpt_discard(&seen->run->dir, 5, seen->run->owner.token, NULL), 0);
	assert_int_equal(mkdirat(seen->run->dir.fd, hidden(seen->run, 5, ""), 0755), 0);
}

static void a_part_of_a_save_that_was_given_up_is_not_durable(void **state)
{
	struct ckpt_fixture run;
	struct ckpt_sample sample;
	struct progress seen = { .run = &run, .discard = true };
	struct ckpt_save_options options = { .progress = progress, .arg = &seen };
	char *text = NULL;
	size_t size;
	struct err err;
	ckpt_fixture_open(&run, files_path("given-up"));
	ckpt_sample_fill(&sample, 5);
	ckpt_sample_part(&sample, 0, 2, 0);
	assert_int_equal(ckpt_save_part(&run.dir, &sample.snapshot, run.owner.token, &options, &text,
						 &size, NULL, &err),
		-1);
	assert_int_equal(seen.calls > 0, 1);
	assert_null(text);
	ckpt_fixture_close(&run);
}

static void progress_reaches_the_total(void **state)
{
	struct ckpt_fixture run;
	struct ckpt_sample sample;
	struct save_result saved;
	struct progress seen = { .run = &run };
	struct ckpt_save_options options = { .progress = progress, .arg = &seen };
	ckpt_fixture_open(&run, files_path("progress"));
	ckpt_sample_fill(&sample, 1);
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, &options, &saved, NULL),
		0);
	assert_true(seen.calls > 0 && seen.done == seen.total && seen.total <= saved.bytes);
	ckpt_fixture_close(&run);
}

static void refused(struct ckpt_fixture *run, const struct snapshot *snapshot, const char *why)
{
	struct err err;
	char *text;
	size_t size;
	assert_int_equal(ckpt_save_part(&run->dir, snapshot, run->owner.token, NULL, &text, &size, NULL,
						 &err),
		-1);
	if (!strstr(err.text, why))
		fail_msg("\"%s\", not \"%s\"", err.text, why);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_false(ckpt_fixture_has(run, hidden(run, 1, "")));
}

static struct snapshot_tensor *fill_state(struct ckpt_sample *sample)
{
	ckpt_sample_fill(sample, 1);
	ckpt_sample_add_state(sample);
	return sample->tensors + CKPT_SAMPLE_TENSORS;
}

static void wrong_states_are_refused(struct ckpt_fixture *run)
{
	struct ckpt_sample sample;
	struct snapshot_tensor *more = fill_state(&sample);
	more[0].state = false;
	refused(run, &sample.snapshot, "'s model is a box");
	more = fill_state(&sample);
	more[4].state = false;
	refused(run, &sample.snapshot, "model comes after its state");
	more = fill_state(&sample);
	sample.box[0].offset[1] = 3;
	refused(run, &sample.snapshot, "a box of tensor average is not in it");
	more = fill_state(&sample);
	sample.snapshot.tensor_count--;
	more[0] = more[5];
	refused(run, &sample.snapshot, "have 16 of its 24 elements");
	more = fill_state(&sample);
	more[4].name = "average[0:2,0:6]";
	more[4].dtype = more[0].dtype;
	more[4].shape[0] /= 4;
	refused(run, &sample.snapshot, "has the name of a box");
	more = fill_state(&sample);
	more[4].name = sample.tensors[0].name;
	refused(run, &sample.snapshot, "is there twice");
}

static void wrong_snapshots_are_refused(void **state)
{
	struct ckpt_fixture run;
	struct ckpt_sample sample;
	struct err err;
	ckpt_fixture_open(&run, files_path("wrong"));
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
	refused(&run, &sample.snapshot, "after writer 1");
	ckpt_sample_fill(&sample, 1);
	sample.tensors[1].name = sample.tensors[0].name;
	sample.snapshot.shard_size = 1;
	refused(&run, &sample.snapshot, "is there twice");
	ckpt_sample_fill(&sample, 1);
	sample.slices[0].state[1] = NULL;
	refused(&run, &sample.snapshot, "has no data");
	wrong_states_are_refused(&run);
	ckpt_fixture_newest_is(&run, -1);
	ckpt_fixture_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_parts_and_shards_holds_the_state),
		cmocka_unit_test(whoever_commits_writes_the_same_bytes),
		cmocka_unit_test(what_is_not_whole_is_not_finished),
		cmocka_unit_test(a_whole_save_of_one_writer_is_finished),
		cmocka_unit_test(a_part_may_be_written_again),
		cmocka_unit_test(a_part_of_a_save_that_was_given_up_is_not_durable),
		cmocka_unit_test(progress_reaches_the_total),
		cmocka_unit_test(wrong_snapshots_are_refused),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
