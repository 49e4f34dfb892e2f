/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_dir, ckpt_save and ckpt: what is saved is read back bit for bit, and what was damaged, cut
 * short, left unfinished or can't be had is told apart. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>

#include "checkpoint/directory/pin.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "common/io.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/checkpoint/save/ckpt_fixture.h"
#include "tests/unit/files.h"

static const char *const shard_names[] = { "manifest.json", "config.json",
	"model.safetensors.index.json", "model-00001-of-00001.safetensors",
	"optimizer-00001-of-00001.safetensors" };

#define SHARDS (sizeof shard_names / sizeof shard_names[0])

/* A file system that is read in several calls may list an entry twice when the folder changes in
 * between. */
static bool lists_twice;

struct dirent *readdir(DIR *stream)
{
	static struct dirent *(*real)(DIR *);
	static struct dirent again;
	static bool has_again;
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "readdir");
	if (has_again) {
		has_again = false;
		return &again;
	}
	struct dirent *entry = real(stream);
	if (entry && lists_twice) {
		again = *entry;
		has_again = true;
	}
	return entry;
}

static void saved_state_comes_back(void **state)
{
	struct ckpt_fixture run;
	AUTO_FREE char *latest = NULL;
	size_t size;
	ckpt_fixture_open(&run, files_path("back/with/parents"));
	ckpt_fixture_newest_is(&run, -1);
	ckpt_fixture_save(&run, 0);
	ckpt_fixture_newest_is(&run, 0);
	ckpt_fixture_save(&run, 99999999);
	ckpt_fixture_save(&run, 100000000);
	ckpt_fixture_newest_is(&run, 100000000);
	assert_int_equal(io_read_file(run.dir.fd, "latest", 100, &latest, &size, NULL), 0);
	assert_string_equal(latest, "step-100000000\n");
	assert_false(ckpt_fixture_has(&run, ".saving-step-00000000"));
	assert_int_equal(run.errors, 0);
	ckpt_fixture_close(&run);
}

static void unknown_ranges_are_refused(void **state)
{
	struct ckpt_fixture run;
	struct ckpt *ckpt;
	float out[64];
	ckpt_fixture_open(&run, files_path("ranges"));
	ckpt_fixture_save(&run, 1);
	assert_int_equal(ckpt_open(&run.dir, 1, CKPT_FIXTURE_PATIENCE, &ckpt, NULL), 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "none", 0, 1, out, NULL), -1);
	assert_int_equal(ckpt_read_tensor(ckpt, "transformer.wte.weight", 35, 1, out, NULL), -1);
	assert_int_equal(ckpt_read_tensor(ckpt, "transformer.wte.weight", 1, UINT64_MAX, out, NULL),
		-1);
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "transformer.wte.weight", 34, 2, out, NULL),
		-1);
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "transformer.h.0.attn.c_attn.bias", 0, 1,
						 out, NULL),
		-1);
	ckpt_close(ckpt);
	ckpt_fixture_close(&run);
}

/* A tensor of more than two chunks, read in ranges that begin and end on both sides of the chunks'
 * borders. */
static void ranges_across_chunks_are_right(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct ckpt *ckpt;
	struct ckpt_sample sample;
	const uint64_t count = 2 * (MANIFEST_CHUNK / 4) + 12345, chunk = MANIFEST_CHUNK / 4;
	AUTO_FREE uint32_t *values = malloc(count * 4), *out = malloc(count * 4);
	for (uint64_t i = 0; i < count; i++)
		values[i] = (uint32_t)i * 2654435761u;
	ckpt_sample_fill(&sample, 1);
	sample.tensors[1] = (struct snapshot_tensor) { .name = "big",
		.dtype = SAFETENSORS_U32,
		.dims = 1,
		.shape = { (int64_t)count },
		.data = values };
	sample.snapshot.slice_count = 0;
	ckpt_fixture_open(&run, files_path("chunks"));
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), 0);
	assert_int_equal(ckpt_open_newest(&run.dir, CKPT_FIXTURE_PATIENCE, &ckpt, &err), 1);
	assert_int_equal(ckpt_manifest(ckpt)->files[0].chunk_count, 3);
	const uint64_t edges[] = { 0, 1, chunk - 1100, chunk - 1024, chunk - 1023, chunk,
		2 * chunk - 1024, 2 * chunk, count };
	for (size_t a = 0; a < sizeof edges / sizeof edges[0]; a++)
		for (size_t b = a; b < sizeof edges / sizeof edges[0]; b++) {
			memset(out, 0, count * 4);
			assert_int_equal(ckpt_read_tensor(ckpt, "big", edges[a], edges[b] - edges[a], out,
								 &err),
				0);
			assert_memory_equal(out, values + edges[a], (edges[b] - edges[a]) * 4);
		}
	/* One bit of the middle chunk: what lies in the others may still be read, what lies there is
	 * not. */
	ckpt_fixture_flip_bit(&run, ckpt_fixture_in_step(1, shard_names[3]), MANIFEST_CHUNK + 4096, 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", 0, 100, out, &err), 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", chunk, 100, out, &err), CKPT_DAMAGED);
	assert_int_equal(ckpt_read_tensor(ckpt, "big", 0, count, out, &err), CKPT_DAMAGED);
	ckpt_close(ckpt);
	ckpt_fixture_close(&run);
}

static void damage_anywhere_is_set_aside(void **state)
{
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("damage"));
	ckpt_fixture_save(&run, 1);
	for (size_t f = 0; f < SHARDS; f++)
		for (int place = 0; place < 3; place++) {
			struct stat st;
			char aside[64];
			ckpt_fixture_save(&run, 2);
			assert_int_equal(fstatat(run.dir.fd, ckpt_fixture_in_step(2, shard_names[f]), &st, 0),
				0);
			ckpt_fixture_flip_bit(&run, ckpt_fixture_in_step(2, shard_names[f]),
				place * (st.st_size - 1) / 2, place);
			run.errors = 0;
			ckpt_fixture_newest_is(&run, 1);
			assert_int_equal(run.errors, 1);
			assert_false(ckpt_fixture_has(&run, "step-00000002"));
			snprintf(aside, sizeof aside, "step-00000002.damaged-%d", (int)f * 3 + place + 1);
			assert_true(ckpt_fixture_has(&run, aside));
		}
	ckpt_fixture_close(&run);
}

static void what_is_short_long_or_missing_is_set_aside(void **state)
{
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("short"));
	ckpt_fixture_save(&run, 1);
	for (size_t f = 0; f < SHARDS; f++) {
		struct stat st;
		const off_t changes[] = { -1, 1, -1000000 };
		for (int c = 0; c < 4; c++) {
			ckpt_fixture_save(&run, 2);
			char *path = ckpt_fixture_in_step(2, shard_names[f]);
			int fd = openat(run.dir.fd, path, O_RDWR);
			assert_int_equal(fstat(fd, &st), 0);
			if (c == 3)
				assert_int_equal(unlinkat(run.dir.fd, path, 0), 0);
			else
				assert_int_equal(ftruncate(fd,
									 st.st_size + changes[c] < 0 ? 0 : st.st_size + changes[c]),
					0);
			close(fd);
			ckpt_fixture_newest_is(&run, 1);
			assert_false(ckpt_fixture_has(&run, "step-00000002"));
		}
	}
	/* Nothing valid is left: a fresh start, and both folders are kept. */
	ckpt_fixture_flip_bit(&run, ckpt_fixture_in_step(1, shard_names[3]), 4100, 1);
	ckpt_fixture_newest_is(&run, -1);
	assert_true(ckpt_fixture_has(&run, "step-00000001.damaged-1"));
	ckpt_fixture_close(&run);
}

/* A manifest that hashes well but stands in the wrong folder. */
static void a_moved_checkpoint_is_not_another_step(void **state)
{
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("moved"));
	ckpt_fixture_save(&run, 1);
	ckpt_fixture_save(&run, 2);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, "step-00000003"), 0);
	ckpt_fixture_newest_is(&run, 1);
	ckpt_fixture_close(&run);
}

static void other_names_are_ignored(void **state)
{
	static const char *const names[] = { ".saving-step-00000009-ab", "step-9", "step-00000009x",
		"step--0000009", "step-000000009", "step-00000009.damaged-1", "STEP-00000009", "latest.d" };
	struct ckpt_fixture run;
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	ckpt_fixture_open(&run, files_path("names"));
	ckpt_fixture_save(&run, 1);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		assert_int_equal(ckpt_step_of(names[i]), -1);
		assert_int_equal(mkdirat(run.dir.fd, names[i], 0755), 0);
	}
	ckpt_fixture_newest_is(&run, 1);
	assert_int_equal(ckpt_dir_steps(&run.dir, &steps, &count, NULL), 0);
	assert_int_equal(count, 1);
	assert_int_equal(ckpt_step_of("step-123456789"), 123456789);
	ckpt_fixture_close(&run);
}

static void leftovers_of_others_are_removed(void **state)
{
	struct ckpt_fixture run;
	char own[100];
	ckpt_fixture_open(&run, files_path("leftovers"));
	ckpt_fixture_save(&run, 1);
	snprintf(own, sizeof own, ".saving-step-00000002-%s", run.owner.token);
	assert_int_equal(mkdirat(run.dir.fd, own, 0755), 0);
	assert_int_equal(mkdirat(run.dir.fd, ".saving-step-00000002-00", 0755), 0);
	close(openat(run.dir.fd, ".saving-step-00000002-00/manifest.json", O_CREAT | O_WRONLY, 0644));
	close(openat(run.dir.fd, ".saving-step-00000002-00/model", O_CREAT | O_WRONLY, 0644));
	assert_int_equal(mkdirat(run.dir.fd, ".removing-step-00000001-00", 0755), 0);
	close(openat(run.dir.fd, ".latest.n1.5.0", O_CREAT | O_WRONLY, 0644));
	assert_int_equal(remove_leftovers(&run.dir, run.owner.token, NULL), 3);
	assert_true(ckpt_fixture_has(&run, own));
	assert_false(ckpt_fixture_has(&run, ".saving-step-00000002-00"));
	assert_false(ckpt_fixture_has(&run, ".removing-step-00000001-00"));
	ckpt_fixture_newest_is(&run, 1);
	ckpt_fixture_close(&run);
}

static void a_taken_name_keeps_what_has_it(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct save_result saved;
	struct ckpt_sample sample;
	ckpt_fixture_open(&run, files_path("taken"));
	ckpt_fixture_save(&run, 4);
	ckpt_sample_fill(&sample, 4);
	sample.matrix[0] = 123;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, &saved, &err), 0);
	assert_true(saved.taken);
	ckpt_fixture_newest_is(&run, 4);
	/* One that does not verify has no claim to the name. */
	ckpt_fixture_flip_bit(&run, ckpt_fixture_in_step(4, shard_names[3]), 4100, 1);
	ckpt_fixture_save(&run, 4);
	ckpt_fixture_newest_is(&run, 4);
	assert_true(ckpt_fixture_has(&run, "step-00000004.damaged-1"));
	ckpt_fixture_close(&run);
}

static void a_newer_format_is_refused_not_set_aside(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct ckpt *ckpt;
	AUTO_FREE char *text = NULL;
	size_t size;
	char hex[HASH_HEX_SIZE];
	ckpt_fixture_open(&run, files_path("newer"));
	ckpt_fixture_save(&run, 1);
	ckpt_fixture_save(&run, 2);
	char *path = ckpt_fixture_in_step(2, "manifest.json");
	assert_int_equal(io_read_file(run.dir.fd, path, 1 << 20, &text, &size, NULL), 0);
	strstr(text, "\"version\": ")[11] = '1' + MANIFEST_VERSION;
	char *self = strstr(text, ",\n \"self\"");
	hash_hex(hash_bytes(text, (size_t)(self - text)), hex);
	memcpy(self + strlen(",\n \"self\": \""), hex, HASH_HEX_SIZE - 1);
	int fd = openat(run.dir.fd, path, O_WRONLY | O_TRUNC);
	assert_int_equal(io_write_full(fd, text, size), 0);
	close(fd);
	assert_int_equal(ckpt_open_newest(&run.dir, CKPT_FIXTURE_PATIENCE, &ckpt, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "newer Muster"));
	assert_true(ckpt_fixture_has(&run, "step-00000002"));
	ckpt_fixture_close(&run);
}

static void a_save_that_is_not_the_owners_leaves_nothing(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct ckpt_sample sample;
	ckpt_fixture_open(&run, files_path("foreign"));
	ckpt_fixture_save(&run, 1);
	ckpt_sample_fill(&sample, 2);
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, "ffffffffffffffffffffffffffffffff", NULL,
						 NULL, &err),
		-1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(strstr(err.text, "another attempt owns"));
	assert_false(ckpt_fixture_has(&run, ".saving-step-00000002-ffffffffffffffffffffffffffffffff"));
	assert_int_equal(remove_step(&run.dir, 1, "ffffffffffffffffffffffffffffffff", &err), -1);
	ckpt_fixture_newest_is(&run, 1);
	ckpt_fixture_close(&run);
}

static void wrong_snapshots_are_refused(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct ckpt_sample sample;
	ckpt_fixture_open(&run, files_path("wrong"));
	ckpt_sample_fill(&sample, 1);
	sample.snapshot.config_json = "{\"identity\": {}}";
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	sample.snapshot.config_json = "{";
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	ckpt_sample_fill(&sample, 1);
	sample.tensors[0].name = sample.tensors[1].name;
	assert_int_equal(ckpt_save(&run.dir, &sample.snapshot, run.owner.token, NULL, NULL, &err), -1);
	ckpt_fixture_newest_is(&run, -1);
	ckpt_fixture_close(&run);
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
	struct ckpt_fixture run;
	struct retention policy = { .keep_last = 2, .keep_every = 4 };
	AUTO_FREE int64_t *steps = NULL;
	size_t count;
	ckpt_fixture_open(&run, files_path("retain"));
	for (int64_t step = 1; step <= 8; step++)
		ckpt_fixture_save(&run, step);
	assert_int_equal(remove_expired(&run.dir, &policy, run.owner.token, NULL), 0);
	assert_int_equal(ckpt_dir_steps(&run.dir, &steps, &count, NULL), 0);
	assert_int_equal(count, 3);
	assert_int_equal(steps[0], 4);
	assert_int_equal(steps[1], 7);
	assert_int_equal(remove_leftovers(&run.dir, "", NULL), -1);
	ckpt_fixture_newest_is(&run, 8);
	ckpt_fixture_close(&run);
}

/* What a disk refused to remove, after step 3: of this owner only, nothing of a later save, and a
 * pin is honoured. */
static void own_leftovers_are_tidied(void **state)
{
	static const char *const names[] = { ".saving-step-00000002-", ".saving-step-00000003-",
		".removing-step-00000001-", ".saving-step-00000004-", ".removing-step-00000009-" };
	struct ckpt_fixture run;
	struct err err;
	char name[100];
	ckpt_fixture_open(&run, files_path("tidy"));
	ckpt_fixture_save(&run, 2);
	ckpt_fixture_save(&run, 3);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s%s", names[i], run.owner.token);
		assert_int_equal(mkdirat(run.dir.fd, name, 0755), 0);
	}
	assert_int_equal(mkdirat(run.dir.fd, ".saving-step-00000002-00", 0755), 0);
	assert_int_equal(pin_set(&run.dir, 2, &err), 0);
	snprintf(name, sizeof name, ".removing-step-00000002-%s", run.owner.token);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, name), 0);
	remove_own_leftovers(&run.dir, 3, run.owner.token);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(name, sizeof name, "%s%s", names[i], run.owner.token);
		assert_int_equal(ckpt_fixture_has(&run, name), i >= 3);
	}
	assert_true(ckpt_fixture_has(&run, ".saving-step-00000002-00"));
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3 }, 2);
	ckpt_fixture_close(&run);
}

static void what_is_listed_twice_counts_once(void **state)
{
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("twice"));
	for (int64_t step = 1; step <= 4; step++)
		ckpt_fixture_save(&run, step);
	lists_twice = true;
	assert_int_equal(remove_expired(&run.dir, &(struct retention) { .keep_last = 3 },
						 run.owner.token, NULL),
		0);
	lists_twice = false;
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3, 4 }, 3);
	ckpt_fixture_close(&run);
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
		cmocka_unit_test(own_leftovers_are_tidied),
		cmocka_unit_test(a_taken_name_keeps_what_has_it),
		cmocka_unit_test(a_newer_format_is_refused_not_set_aside),
		cmocka_unit_test(a_save_that_is_not_the_owners_leaves_nothing),
		cmocka_unit_test(wrong_snapshots_are_refused),
		cmocka_unit_test(a_directory_that_cannot_be_used_is_told_of),
		cmocka_unit_test(retention_removes_folders),
		cmocka_unit_test(what_is_listed_twice_counts_once),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
