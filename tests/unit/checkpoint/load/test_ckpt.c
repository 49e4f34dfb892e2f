/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt: a checkpoint of several shards is read like one of a single shard, and files that hash well
 * but do not fit together are damage. */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/shard_write.h"
#include "common/auto.h"
#include "tests/unit/files.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

/* A checkpoint being put together by hand. */
struct made {
	struct ckpt_dir dir;
	int fd;
	struct manifest *manifest;
};

static void begin(struct made *made, const char *name)
{
	struct err err;
	assert_int_equal(ckpt_dir_open(&made->dir, files_path(name), &err), 0);
	assert_int_equal(mkdirat(made->dir.fd, "step-00000001", 0755), 0);
	made->fd = openat(made->dir.fd, "step-00000001", O_RDONLY | O_DIRECTORY);
	made->manifest = manifest_create();
	made->manifest->step = 1;
	made->manifest->world_size = 1;
	strcpy(made->manifest->token, TOKEN);
	made->manifest->config = json_pack("{s:{}, s:{}, s:{}}", "identity", "schedule", "operation");
	made->manifest->numerics = json_object();
}

/* One shard of these tensors; element i of the file's data is `base` + i. `slices` NULL: a model's.
 */
static void add(struct made *made, const char *name, struct safetensors_tensor *tensors,
	size_t count, const char *slices, float base)
{
	struct err err;
	AUTO_FREE char *prefix = NULL;
	size_t prefix_size;
	uint64_t data;
	struct safetensors_note note = { "slices", (char *)slices };
	assert_int_equal(safetensors_encode(tensors, count, &note, slices ? 1 : 0, &prefix,
						 &prefix_size, &data, &err),
		0);
	struct manifest_file *file = manifest_add_file(made->manifest, name,
		slices ? MANIFEST_OPTIMIZER : MANIFEST_MODEL, prefix_size + data);
	AUTO_FREE float *values = calloc(data / 4 + 1, sizeof *values);
	for (uint64_t i = 0; i < data / 4; i++)
		values[i] = base + (float)i;
	const struct shard_piece pieces[] = { { prefix, prefix_size }, { values, data } };
	assert_int_equal(shard_write(made->fd, file, pieces, 2, NULL, &err), 0);
}

static void add_model(struct made *made, const char *name, const char *tensor, int64_t count,
	float base)
{
	struct safetensors_tensor one = { .name = (char *)tensor,
		.dtype = SAFETENSORS_F32,
		.dims = 1,
		.shape = { count } };
	add(made, name, &one, 1, NULL, base);
}

static void add_optimizer(struct made *made, const char *name, const char *slices, int64_t count,
	float base)
{
	struct safetensors_tensor three[] = {
		{ .name = "master", .dtype = SAFETENSORS_F32, .dims = 1, .shape = { count } },
		{ .name = "m", .dtype = SAFETENSORS_F32, .dims = 1, .shape = { count } },
		{ .name = "v", .dtype = SAFETENSORS_F32, .dims = 1, .shape = { count } },
	};
	add(made, name, three, 3, slices, base);
}

static int end(struct made *made, struct ckpt **ckpt, struct err *err)
{
	char *text;
	size_t size;
	assert_int_equal(manifest_encode(made->manifest, &text, &size, err), 0);
	int fd = openat(made->fd, MANIFEST_NAME, O_WRONLY | O_CREAT, 0644);
	assert_int_equal(write(fd, text, size), size);
	close(fd);
	free(text);
	manifest_destroy(made->manifest);
	int result = ckpt_open(&made->dir, 1, 0.1, ckpt, err);
	close(made->fd);
	ckpt_dir_close(&made->dir);
	return result;
}

static void any_number_of_shards_is_read(void **state)
{
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	float out[20];
	begin(&made, "shards");
	add_model(&made, "model-00001-of-00002.safetensors", "b", 5, 100);
	add_model(&made, "model-00002-of-00002.safetensors", "a", 10, 200);
	add_optimizer(&made, "optimizer-00001-of-00002.safetensors",
		"[[\"a\",6,4],[\"b\",0,5],[\"a\",0,3]]", 12, 1000);
	add_optimizer(&made, "optimizer-00002-of-00002.safetensors", "[[\"a\",3,3],[\"a\",6,0]]", 3,
		2000);
	if (end(&made, &ckpt, &err) < 0 || ckpt_verify(ckpt, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(ckpt_tensor_count(ckpt), 2);
	assert_string_equal(ckpt_tensor_at(ckpt, 0)->name, "a");
	assert_int_equal(ckpt_read_tensor(ckpt, "a", 2, 3, out, &err), 0);
	assert_true(out[0] == 202 && out[2] == 204);
	assert_int_equal(ckpt_read_tensor(ckpt, "b", 4, 1, out, &err), 0);
	assert_true(out[0] == 104);
	/* "m" lies after the 12 or 3 elements of "master". */
	const float want[10] = { 1021, 1022, 1023, 2003, 2004, 2005, 1012, 1013, 1014, 1015 };
	for (uint64_t first = 0; first <= 10; first++)
		for (uint64_t count = 0; first + count <= 10; count++) {
			assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "a", first, count, out, &err), 0);
			assert_memory_equal(out, want + first, count * 4);
		}
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_V, "b", 0, 5, out, &err), 0);
	assert_true(out[0] == 1028 && out[4] == 1032);
	/* The same on the way of a verification, some of it twice. */
	float whole[10], part[3], b[5];
	const struct ckpt_want wants[] = { { SNAPSHOT_V, "b", 0, 5, b },
		{ SNAPSHOT_M, "a", 0, 10, whole }, { SNAPSHOT_M, "a", 2, 3, part },
		{ SNAPSHOT_M, "a", 5, 0, NULL } };
	if (ckpt_load(ckpt, wants, 4, &err) < 0)
		fail_msg("%s", err.text);
	assert_memory_equal(whole, want, sizeof want);
	assert_memory_equal(part, want + 2, sizeof part);
	assert_true(b[0] == 1028 && b[4] == 1032);
	const struct ckpt_want unknown[] = { { SNAPSHOT_V, "b", 3, 3, b },
		{ SNAPSHOT_V, "c", 0, 1, b } };
	assert_int_equal(ckpt_load(ckpt, unknown, 1, &err), -1);
	assert_int_equal(ckpt_load(ckpt, unknown + 1, 1, &err), -1);
	ckpt_close(ckpt);
}

/* Of a file of two chunks, of which the second is damaged and holds the end of "m" and all of "v".
 */
static void only_chunks_that_hold_what_is_wanted_are_read(void **state)
{
	const int64_t count = 2200000;
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	float begin_of_m[3], middle_of_m[2], begin_of_v[2];
	begin(&made, "chunks");
	add_model(&made, "model-00001-of-00001.safetensors", "a", count, 100);
	add_optimizer(&made, "optimizer-00001-of-00001.safetensors", "[[\"a\",0,2200000]]", count, 0);
	int fd = openat(made.fd, "optimizer-00001-of-00001.safetensors", O_WRONLY);
	assert_int_equal(pwrite(fd, "damage", 6, 20 << 20), 6);
	close(fd);
	if (end(&made, &ckpt, &err) < 0)
		fail_msg("%s", err.text);
	const struct ckpt_want wants[] = { { SNAPSHOT_M, "a", 1000000, 2, middle_of_m },
		{ SNAPSHOT_M, "a", 7, 0, NULL }, { SNAPSHOT_M, "a", 0, 3, begin_of_m },
		{ SNAPSHOT_V, "a", 0, 2, begin_of_v } };
	if (ckpt_load_share(ckpt, wants, 3, 0, 2, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(begin_of_m[0] == 2200000 && begin_of_m[2] == 2200002 && middle_of_m[0] == 3200000
		&& middle_of_m[1] == 3200001);
	assert_int_equal(ckpt_load_share(ckpt, wants, 4, 0, 2, &err), CKPT_DAMAGED);
	assert_int_equal(ckpt_load(ckpt, wants, 3, &err), CKPT_DAMAGED);
	ckpt_close(ckpt);
}

/* Number of parts that find damage, where part 0 reads the weights, and each its moments. `room`:
 * [3, count] */
static int parts_that_find(struct ckpt *ckpt, int64_t count, int parts, float *room)
{
	int found = 0;
	for (int part = 0; part < parts; part++) {
		const uint64_t begin = (uint64_t)(count * part / parts),
					   own = (uint64_t)(count * (part + 1) / parts) - begin;
		const struct ckpt_want wants[] = {
			{ SNAPSHOT_MASTER, "a", 0, part == 0 ? (uint64_t)count : 0, room },
			{ SNAPSHOT_M, "a", begin, own, room + count },
			{ SNAPSHOT_V, "a", begin, own, room + 2 * count },
		};
		struct err err;
		int result = ckpt_load_share(ckpt, wants, 3, part, parts, &err);
		if (result == -1)
			fail_msg("%s", err.text);
		found += result == CKPT_DAMAGED;
	}
	return found;
}

static void flip(int fd, off_t at)
{
	char byte;
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte = (char)~byte;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* Of files of two and four chunks. */
static void together_the_parts_verify_all(void **state)
{
	const int64_t count = 5000000;
	static const char model[] = "model-00001-of-00001.safetensors",
					  optimizer[] = "optimizer-00001-of-00001.safetensors";
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	float *room = malloc(3 * (size_t)count * sizeof *room);
	begin(&made, "shares");
	add_model(&made, model, "a", count, 100);
	add_optimizer(&made, optimizer, "[[\"a\",0,5000000]]", count, 0);
	const int fds[] = { openat(made.fd, model, O_RDWR), openat(made.fd, optimizer, O_RDWR) };
	if (end(&made, &ckpt, &err) < 0)
		fail_msg("%s", err.text);
	for (int parts = 1; parts <= 3; parts++) {
		assert_int_equal(parts_that_find(ckpt, count, parts, room), 0);
		for (int i = 0; i < 2; i++)
			for (off_t at = 1000000; at < (i ? 60 : 20) * 1000000; at += MANIFEST_CHUNK) {
				flip(fds[i], at);
				assert_in_range(parts_that_find(ckpt, count, parts, room), 1, parts);
				flip(fds[i], at);
			}
	}
	close(fds[0]);
	close(fds[1]);
	ckpt_close(ckpt);
	free(room);
}

static void slices_are(const char *slices, int64_t count, const char *why)
{
	static int number;
	char name[32];
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	snprintf(name, sizeof name, "slices-%d", number++);
	begin(&made, name);
	add_model(&made, "model", "a", 10, 0);
	add_optimizer(&made, "optimizer", slices, count, 0);
	int result = end(&made, &ckpt, &err);
	if (result == 0)
		ckpt_close(ckpt);
	if (!why) {
		assert_int_equal(result, 0);
		return;
	}
	assert_int_equal(result, CKPT_DAMAGED);
	if (!strstr(err.text, why))
		fail_msg("%s: \"%s\", not \"%s\"", slices, err.text, why);
}

static void slices_must_cover_each_tensor_once(void **state)
{
	slices_are("[[\"a\",0,10]]", 10, NULL);
	slices_are("[]", 0, NULL);
	slices_are("[[\"a\",0,9]]", 9, "cover it exactly once");
	slices_are("[[\"a\",1,9]]", 9, "cover it exactly once");
	slices_are("[[\"a\",0,5],[\"a\",6,4]]", 9, "cover it exactly once");
	slices_are("[[\"a\",0,5],[\"a\",4,6]]", 11, "cover it exactly once");
	slices_are("[[\"a\",0,10],[\"a\",0,10]]", 20, "cover it exactly once");
	slices_are("[[\"a\",0,11]]", 11, "out of range");
	slices_are("[[\"a\",9223372036854775807,9223372036854775807]]", 10, "out of range");
	slices_are("[[\"a\",-1,10]]", 10, "not valid");
	slices_are("[[\"b\",0,10]]", 10, "not valid");
	slices_are("[[\"a\",0]]", 10, "not valid");
	slices_are("[[\"a\",0,10]]", 11, "has no array master of 10 elements");
	slices_are("{}", 10, "does not say which slices");
	slices_are("x", 10, "does not say which slices");
}

static void a_tensor_in_two_shards_is_damage(void **state)
{
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	begin(&made, "twice");
	add_model(&made, "model-1", "a", 5, 0);
	add_model(&made, "model-2", "a", 5, 0);
	assert_int_equal(end(&made, &ckpt, &err), CKPT_DAMAGED);
	assert_non_null(strstr(err.text, "there twice"));
}

static void without_an_optimizer_there_is_no_state_to_read(void **state)
{
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	float out[5];
	begin(&made, "weights");
	add_model(&made, "model", "a", 5, 0);
	assert_int_equal(end(&made, &ckpt, &err), 0);
	assert_int_equal(ckpt_read_tensor(ckpt, "a", 0, 5, out, &err), 0);
	assert_int_equal(ckpt_read_state(ckpt, SNAPSHOT_M, "a", 0, 5, out, &err), -1);
	assert_non_null(strstr(err.text, "no elements 0 to 5 of the m of a"));
	ckpt_close(ckpt);
}

static long allocations = -1; /* until there is no memory; -1: there is always some */

static void *allocate(size_t size)
{
	if (allocations == 0)
		errno = ENOMEM;
	else if (allocations > 0)
		allocations--;
	return allocations == 0 ? NULL : malloc(size);
}

/* Or a node that is short of memory would set its good checkpoints aside. */
static void memory_that_is_short_is_no_damage(void **state)
{
	struct made made;
	struct ckpt *ckpt;
	struct err err;
	begin(&made, "short");
	add_model(&made, "model", "a", 10, 0);
	add_optimizer(&made, "optimizer", "[[\"a\",0,10]]", 10, 0);
	assert_int_equal(end(&made, &ckpt, &err), 0);
	ckpt_close(ckpt);
	assert_int_equal(ckpt_dir_open(&made.dir, files_path("short"), &err), 0);
	json_set_alloc_funcs(allocate, free);
	int result = -1, failed = 0;
	for (long most = 1; result < 0; most++) {
		allocations = most;
		result = ckpt_open(&made.dir, 1, 0, &ckpt, &err);
		allocations = -1;
		if (result == CKPT_DAMAGED)
			fail_msg("without memory from allocation %ld on: %s", most, err.text);
		failed += result < 0;
	}
	json_set_alloc_funcs(malloc, free);
	assert_true(failed > 50);
	ckpt_close(ckpt);
	ckpt_dir_close(&made.dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_number_of_shards_is_read),
		cmocka_unit_test(only_chunks_that_hold_what_is_wanted_are_read),
		cmocka_unit_test(together_the_parts_verify_all),
		cmocka_unit_test(slices_must_cover_each_tensor_once),
		cmocka_unit_test(a_tensor_in_two_shards_is_damage),
		cmocka_unit_test(without_an_optimizer_there_is_no_state_to_read),
		cmocka_unit_test(memory_that_is_short_is_no_damage),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
