/* SPDX-License-Identifier: Apache-2.0 */
/* States that change from save to save: each comes back whole, under any of its names and in any
 * pieces; what can't be saved has its line; a run's identity is kept; and memory is not used that
 * is not there. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/alone_fixture.h"

#define TENSORS 6
#define BYTES (3 << 20) /* of the largest tensor */

/* ---- a state with many faces ---- */

/* The tensors of a step: the first two are the model's; the optimizer's come with step 2, and grow
 * with each step. Byte i of tensor t is known. */
static struct made {
	unsigned char *data[TENSORS];
	struct muster_tensor tensors[TENSORS];
	size_t count;
	char values[100];
	struct muster_state state;
} made;

static unsigned char byte_of(int64_t step, size_t tensor, size_t i)
{
	return (unsigned char)(i * 7 + tensor * 31 + (size_t)step * 101 + i / 251);
}

static size_t bytes_of(const struct muster_tensor *tensor)
{
	size_t bytes = strcmp(tensor->dtype, "F32") == 0 ? 4
		: strcmp(tensor->dtype, "BF16") == 0         ? 2
													 : 1;
	for (int d = 0; d < tensor->dims; d++)
		bytes *= (size_t)tensor->shape[d];
	return bytes;
}

static void make(int64_t step)
{
	const struct muster_tensor all[TENSORS] = {
		{ "layer.weight", "F32", 2, { 30, 50 }, NULL },
		{ "layer.scale", "BF16", 1, { 3 }, NULL },
		{ "random", "U8", 1, { 2500 }, NULL },
		{ "optimizer/0/exp_avg", "F32", 2, { step, BYTES / 16 }, NULL },
		{ "optimizer/0/step", "F32", 0, { 0 }, NULL },
		{ "optimizer/empty", "BOOL", 2, { 0, 5 }, NULL },
	};
	made.count = step == 1 ? 3 : TENSORS;
	for (size_t t = 0; t < made.count; t++) {
		size_t bytes = bytes_of(&all[t]);
		free(made.data[t]);
		made.data[t] = bytes ? malloc(bytes) : NULL;
		for (size_t i = 0; i < bytes; i++)
			made.data[t][i] = byte_of(step, t, i);
		made.tensors[t] = all[t];
		made.tensors[t].data = made.data[t];
	}
	snprintf(made.values, sizeof made.values, "{\"epoch\": %d, \"name\": {\"$tuple\": [1, \"x\"]}}",
		(int)step);
	made.state = (struct muster_state) { .size = sizeof made.state,
		.model = made.tensors,
		.model_count = 2,
		.state = made.tensors + 2,
		.state_count = made.count - 2,
		.values = made.values,
		.config = step % 2 ? NULL : "{\"model_type\": \"own\"}",
		.cursor = (uint64_t)step * 64,
		.loss = 0.5,
		.validation_loss = NAN };
}

static struct muster_ckpt *open_run(const char *name, const char *identity)
{
	struct muster_ckpt *ckpt;
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.dir = files_path(name),
		.timeout = HANG_SECONDS,
		.identity = identity };
	assert_ok(muster_ckpt_open(muster, &plan, &ckpt));
	return ckpt;
}

static void save_steps(struct muster_ckpt *ckpt, int64_t first, int64_t last)
{
	for (int64_t step = first; step <= last; step++) {
		make(step);
		assert_ok(muster_ckpt_save_state(ckpt, step, &made.state));
		for (size_t t = 0; t < made.count; t++) /* what is saved is the copy */
			if (made.data[t])
				memset(made.data[t], 0xee, bytes_of(&made.tensors[t]));
		memset(made.values, '?', sizeof made.values);
	}
}

static void assert_tensor(struct muster_saved *saved, int64_t step, size_t index)
{
	const struct muster_tensor *wanted = &made.tensors[index];
	struct muster_tensor tensor;
	size_t at = 0, bytes = bytes_of(wanted), width = 0;
	int state = index >= 2;
	/* By its name, wherever it stands. */
	do
		assert_ok(muster_saved_tensor(saved, state, at++, &tensor));
	while (strcmp(tensor.name, wanted->name) != 0);
	assert_string_equal(tensor.dtype, wanted->dtype);
	assert_int_equal(tensor.dims, wanted->dims);
	assert_memory_equal(tensor.shape, wanted->shape, sizeof tensor.shape[0] * (size_t)tensor.dims);
	assert_null(tensor.data);
	width = strcmp(tensor.dtype, "F32") == 0 ? 4 : strcmp(tensor.dtype, "BF16") == 0 ? 2 : 1;
	const size_t elements = bytes / width, third = elements / 3;
	unsigned char *data = malloc(bytes + 1);
	assert_ok(
		muster_saved_read(saved, wanted->name, third, elements - third, data + third * width));
	assert_ok(muster_saved_read(saved, wanted->name, 0, third, data));
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != byte_of(step, index, i))
			fail_msg("byte %zu of %s is wrong", i, wanted->name);
	assert_refused(muster_saved_read(saved, wanted->name, elements, 1, data), MUSTER_USAGE,
		"couldn't read elements");
	free(data);
}

static void assert_saved(struct muster_saved *saved, int64_t step)
{
	const char *text;
	make(step);
	assert_non_null(saved);
	assert_int_equal(muster_saved_step(saved), step);
	assert_int_equal(muster_saved_count(saved, 0), 2);
	assert_int_equal(muster_saved_count(saved, 1), made.count - 2);
	for (size_t t = 0; t < made.count; t++)
		assert_tensor(saved, step, t);
	assert_ok(muster_saved_values(saved, &text));
	assert_string_equal(text, made.values);
	assert_non_null(strstr(muster_saved_manifest(saved), "\"version\": 2"));
	char cursor[40];
	snprintf(cursor, sizeof cursor, "\"cursor\": %d", (int)step * 64);
	assert_non_null(strstr(muster_saved_manifest(saved), cursor));
}

static void each_state_comes_back_as_it_was(void **state)
{
	struct muster_saved *saved = (struct muster_saved *)(void *)&muster;
	struct stat st;
	struct muster_ckpt *ckpt = open_run("run", NULL);
	assert_ok(muster_ckpt_load_state(ckpt, &saved));
	assert_null(saved);
	save_steps(ckpt, 1, 5); /* more than there are buffers */
	assert_ok(muster_ckpt_wait(ckpt, 5, 0));
	assert_refused(muster_ckpt_load_state(ckpt, &saved), MUSTER_USAGE, "loaded or saved already");
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	ckpt = open_run("run", NULL);
	make(6);
	assert_refused(muster_ckpt_save_state(ckpt, 6, &made.state), MUSTER_USAGE,
		"run holds step 5 already: load that first");
	assert_ok(muster_ckpt_load_state(ckpt, &saved));
	assert_saved(saved, 5);
	muster_saved_close(saved);
	save_steps(ckpt, 6, 6);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished")); /* waits */
	for (int64_t step = 1; step <= 6; step++) {
		assert_ok(muster_saved_open(files_path("run"), step == 6 ? -1 : step, 0, &saved));
		assert_saved(saved, step);
		muster_saved_close(saved);
	}
	assert_int_equal(stat(files_path("run/step-00000005/config.json"), &st), -1);
	assert_int_equal(stat(files_path("run/step-00000006/config.json"), &st), 0);
}

static void damage_is_found_before_anything_is_used(void **state)
{
	struct stat st;
	struct muster_saved *saved;
	struct muster_ckpt *ckpt = open_run("damaged", NULL);
	save_steps(ckpt, 1, 3);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	int fd = open(files_path("damaged/step-00000003/state-00001-of-00001.safetensors"), O_RDWR);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_int_equal(pwrite(fd, "\x55\xaa", 2, st.st_size - 5), 2);
	close(fd);
	muster_set_log(NULL, NULL);
	/* Who only reads changes nothing. */
	assert_refused(muster_saved_open(files_path("damaged"), 3, 0, &saved), MUSTER_DATA, "state-");
	assert_null(saved);
	assert_ok(muster_saved_open(files_path("damaged"), -1, 0, &saved));
	assert_saved(saved, 2);
	muster_saved_close(saved);
	assert_int_equal(stat(files_path("damaged/step-00000003"), &st), 0);
	ckpt = open_run("damaged", NULL);
	assert_ok(muster_ckpt_load_state(ckpt, &saved));
	assert_saved(saved, 2);
	assert_int_equal(stat(files_path("damaged/step-00000003.damaged-1"), &st), 0);
	muster_saved_close(saved);
	save_steps(ckpt, 3, 3);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

static void another_identity_is_refused_with_both_values(void **state)
{
	static const struct {
		const char *identity, *words;
	} others[] = {
		{ "{\"lr\": 0.2, \"layers\": [1, 2]}", "\"lr\" 0.1, and this run has 0.2" },
		{ "{\"layers\": [1, 2]}", "\"lr\" 0.1, and this run has nothing" },
		{ "{\"lr\": 0.1, \"layers\": [1, 3]}", "\"layers\" [1, 2], and this run has [1, 3]" },
		{ "{\"lr\": 0.1, \"layers\": [1, 2], \"seed\": 3}",
			"\"seed\" nothing, and this run has 3" },
	};
	struct muster_saved *saved;
	struct muster_ckpt *ckpt = open_run("identity", "{\"lr\": 0.1, \"layers\": [1, 2]}");
	save_steps(ckpt, 1, 1);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		ckpt = open_run("identity", others[i].identity);
		assert_refused(muster_ckpt_load_state(ckpt, &saved), MUSTER_USAGE, others[i].words);
		assert_null(saved);
		assert_ok(muster_ckpt_close(ckpt, MUSTER_USAGE, "another identity"));
	}
	ckpt = open_run("identity", "{\"layers\": [1, 2], \"lr\": 0.1}");
	assert_ok(muster_ckpt_load_state(ckpt, &saved));
	assert_saved(saved, 1);
	muster_saved_close(saved);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
}

/* ---- what can't be ---- */

static void refuse_state(struct muster_ckpt *ckpt, struct muster_state state, const char *words)
{
	assert_refused(muster_ckpt_save_state(ckpt, 9, &state), MUSTER_USAGE, words);
}

static void what_is_no_state_is_refused(void **state)
{
	struct muster_ckpt *ckpt = open_run("refused", NULL);
	make(2);
	struct muster_state wrong = made.state;
	assert_refused(muster_ckpt_save_state(ckpt, 1, NULL), MUSTER_USAGE, "NULL as the state");
	wrong.size = offsetof(struct muster_state, model_placements) - 1; /* all had as much */
	refuse_state(ckpt, wrong, "sizeof(struct muster_state)");
	wrong = made.state;
	wrong.model = NULL;
	refuse_state(ckpt, wrong, "2 and 4 tensors, and nothing says which");
	wrong = (struct muster_state) { .size = sizeof wrong };
	refuse_state(ckpt, wrong, "neither a tensor nor values");
	wrong = made.state;
	wrong.values = "{\"a\": }";
	refuse_state(ckpt, wrong, "the state's values: ");
	wrong.values = "3";
	refuse_state(ckpt, wrong, "the state's values: ");
	wrong.values = "{\"a\": 1, \"a\": 2}";
	refuse_state(ckpt, wrong, "duplicate");
	wrong = made.state;
	wrong.config = "[]";
	refuse_state(ckpt, wrong, "the state's config: it is not a JSON object");
	wrong = made.state;
	wrong.cursor = UINT64_MAX;
	refuse_state(ckpt, wrong, "its cursor is not below 2^63");
	wrong = made.state;
	made.tensors[4].name = made.tensors[1].name;
	refuse_state(ckpt, wrong, "tensor layer.scale is there twice");
	made.tensors[4].name = "x";
	made.tensors[4].data = NULL;
	refuse_state(ckpt, wrong, "tensor x: it needs a name, a dtype and data");
	/* After all that it saves as before. */
	save_steps(ckpt, 1, 2);
	assert_refused(muster_ckpt_save(ckpt, 3, NAN), MUSTER_USAGE, "the plan has no tensors");
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	assert_ok(muster_ckpt_save_state(NULL, 1, NULL));
}

static void the_two_kinds_of_plans_are_told_apart(void **state)
{
	double value = 1;
	int64_t step;
	struct muster_saved *saved;
	struct muster_ckpt *ckpt;
	const struct muster_tensor tensor = { "value", "F64", 0, { 0 }, &value };
	struct muster_ckpt_plan plan = { .size = sizeof plan,
		.dir = files_path("kinds"),
		.tensors = &tensor,
		.tensor_count = 1,
		.timeout = HANG_SECONDS };
	assert_ok(muster_ckpt_open(muster, &plan, &ckpt));
	make(1);
	assert_refused(muster_ckpt_save_state(ckpt, 1, &made.state), MUSTER_USAGE,
		"the plan has tensors");
	assert_refused(muster_ckpt_load_state(ckpt, &saved), MUSTER_USAGE, "the plan has tensors");
	assert_ok(muster_ckpt_save(ckpt, 1, NAN));
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	ckpt = open_run("kinds", NULL);
	assert_refused(muster_ckpt_load(ckpt, &step), MUSTER_USAGE, "the plan has no tensors");
	/* Its checkpoint is read all the same, and a program with a plan of tensors reads no state. */
	assert_ok(muster_ckpt_load_state(ckpt, &saved));
	assert_int_equal(muster_saved_count(saved, 0), 1);
	assert_int_equal(muster_saved_count(saved, 1), 0);
	muster_saved_close(saved);
	save_steps(ckpt, 2, 2);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	assert_ok(muster_ckpt_open(muster, &plan, &ckpt));
	assert_refused(muster_ckpt_load(ckpt, &step), MUSTER_DATA, "has 6 tensors, the program 1");
	assert_int_equal(step, -1);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_DATA, "other tensors"));
}

static void reading_has_its_lines(void **state)
{
	struct muster_saved *saved;
	struct muster_tensor tensor;
	const char *text;
	assert_refused(muster_saved_open(files_path("nowhere"), -1, 0, &saved), MUSTER_USAGE,
		"nowhere");
	assert_null(saved);
	assert_int_equal(mkdir(files_path("empty"), 0755), 0);
	assert_refused(muster_saved_open(files_path("empty"), -1, 0, &saved), MUSTER_DATA,
		"there is none in");
	assert_refused(muster_saved_open(NULL, -1, 0, &saved), MUSTER_USAGE, "NULL as the directory");
	assert_refused(muster_saved_open(files_path("run"), -1, -1, &saved), MUSTER_USAGE, "a timeout");
	assert_refused(muster_saved_open(files_path("run"), -1, 0, NULL), MUSTER_USAGE, "the place");
	assert_int_not_equal(muster_saved_open(files_path("run"), 4711, 0, &saved), MUSTER_OK);
	assert_null(saved);
	assert_ok(muster_saved_open(files_path("run"), -1, 0, &saved));
	assert_refused(muster_saved_tensor(saved, 0, 2, &tensor), MUSTER_USAGE, "there are 2");
	assert_refused(muster_saved_tensor(NULL, 0, 0, &tensor), MUSTER_USAGE, "muster_saved");
	assert_refused(muster_saved_read(saved, "no such", 0, 1, &tensor), MUSTER_DATA,
		"tensor no such: step 6 has none");
	assert_refused(muster_saved_read(saved, "random", 0, 1, NULL), MUSTER_USAGE,
		"NULL as the place");
	const int64_t zero[8] = { 0 }, most[8] = { INT64_MAX, 1, 1, 1, 1, 1, 1, 1 };
	assert_refused(muster_saved_read_box(saved, "no such", zero, zero, NULL), MUSTER_DATA,
		"tensor no such: step 6 has none");
	assert_ok(muster_saved_read_box(saved, "random", zero, zero, NULL));
	assert_refused(muster_saved_read_box(saved, "random", zero, most, &tensor), MUSTER_USAGE,
		"of dimension 0 of tensor random");
	assert_refused(muster_saved_read_box(saved, "random", most, most, &tensor), MUSTER_USAGE,
		"of dimension 0 of tensor random");
	assert_refused(muster_saved_read_box(saved, "random", NULL, zero, &tensor), MUSTER_USAGE,
		"NULL as the offset");
	assert_refused(muster_saved_values(NULL, &text), MUSTER_USAGE, "muster_saved");
	muster_saved_close(saved);
	muster_saved_close(NULL);
	assert_int_equal(muster_saved_step(NULL), -1);
	assert_null(muster_saved_manifest(NULL));
	assert_int_equal(muster_saved_count(NULL, 0), 0);
}

/* ---- memory ---- */

/* The memory that the system says is available. Nothing else in /proc/meminfo is looked at. */
static void set_available(int megabytes)
{
	char text[80];
	snprintf(text, sizeof text, "MemAvailable: %d kB\n", megabytes * 1000);
	int fd = open(files_path("meminfo"), O_WRONLY | O_CREAT | O_TRUNC, 0644);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* How many snapshots of this process have memory. */
static int snapshots_in_memory(void)
{
	char path[64], name[64];
	struct stat st;
	int count = 0;
	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t size = readlink(path, name, sizeof name - 1);
		name[size > 0 ? size : 0] = '\0';
		count += strstr(name, "muster-snapshot") && fstat(fd, &st) == 0 && st.st_blocks > 0;
	}
	return count;
}

static void where_memory_is_short_a_save_waits_or_is_refused(void **state)
{
	struct muster_saved *saved;
	set_available(5);
	if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0
		|| mount(files_path("meminfo"), "/proc/meminfo", NULL, MS_BIND, NULL) < 0) {
		print_message("only root can say how much memory there is\n");
		skip();
	}
	struct muster_ckpt *ckpt = open_run("short", NULL);
	save_steps(ckpt, 5, 5); /* 4 MB */
	set_available(1);
	/* No second snapshot: what was saved first is written when the next one is copied. */
	for (int64_t step = 6; step <= 8; step++) {
		make(5);
		made.state.cursor = (uint64_t)step;
		assert_ok(muster_ckpt_save_state(ckpt, step, &made.state));
	}
	assert_int_equal(snapshots_in_memory(), 1);
	make(9);
	assert_refused(muster_ckpt_save_state(ckpt, 9, &made.state), MUSTER_FAULT,
		"couldn't save step 9: its snapshot needs 7 MB of memory, and 1 MB are left");
	set_available(100);
	save_steps(ckpt, 9, 9);
	assert_ok(muster_ckpt_close(ckpt, MUSTER_OK, "finished"));
	umount("/proc/meminfo");
	assert_ok(muster_saved_open(files_path("short"), -1, 0, &saved));
	assert_saved(saved, 9);
	muster_saved_close(saved);
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : alone_setup();
}

static int end(void **state)
{
	for (size_t t = 0; t < TENSORS; t++)
		free(made.data[t]);
	muster_close(muster, 1);
	return files_teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_state_comes_back_as_it_was),
		cmocka_unit_test(damage_is_found_before_anything_is_used),
		cmocka_unit_test(another_identity_is_refused_with_both_values),
		cmocka_unit_test(what_is_no_state_is_refused),
		cmocka_unit_test(the_two_kinds_of_plans_are_told_apart),
		cmocka_unit_test(reading_has_its_lines),
		cmocka_unit_test(where_memory_is_short_a_save_waits_or_is_refused),
	};
	return cmocka_run_group_tests(tests, begin, end);
}
