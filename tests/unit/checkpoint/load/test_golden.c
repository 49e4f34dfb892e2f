/* SPDX-License-Identifier: Apache-2.0 */
/* The golden checkpoints (tests/golden/README.md), one of each way in which a program of ours has
 * ever written them, are read for ever. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "checkpoint/load/ckpt.h"
#include "tests/tools/ckpt_sample.h"

/* Opens the golden checkpoint and verifies it whole. */
static struct ckpt *open_golden(const char *folder, int64_t step)
{
	struct ckpt_dir dir = { .fd = -1 };
	struct ckpt *ckpt;
	struct err err;
	const char *top = getenv("srcdir");
	snprintf(dir.path, sizeof dir.path, "%s/tests/golden/%s", top ? top : SOURCE_DIR, folder);
	dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir.fd >= 0);
	if (ckpt_open(&dir, step, 0, &ckpt, &err) < 0 || ckpt_verify(ckpt, &err) < 0)
		fail_msg("%s: %s", folder, err.text);
	ckpt_dir_close(&dir);
	return ckpt;
}

/* And compares each value with the sample's. */
static struct ckpt *read_golden(const char *folder, int64_t step)
{
	struct ckpt *ckpt = open_golden(folder, step);
	struct err err;
	if (ckpt_sample_check(ckpt, step, &err) < 0)
		fail_msg("%s: %s", folder, err.text);
	return ckpt;
}

static size_t files_of(const struct ckpt *ckpt, enum manifest_role role)
{
	const struct manifest *manifest = ckpt_manifest(ckpt);
	size_t count = 0;
	for (size_t i = 0; i < manifest->file_count; i++)
		count += manifest->files[i].role == role;
	return count;
}

static void the_first_one(void **state)
{
	struct ckpt *ckpt = read_golden("v1", 3);
	assert_int_equal(files_of(ckpt, MANIFEST_MODEL), 1);
	assert_int_equal(files_of(ckpt, MANIFEST_OPTIMIZER), 1);
	ckpt_close(ckpt);
}

static void shards_of_three_writers(void **state)
{
	struct ckpt *ckpt = read_golden("v1-shards", 4);
	assert_int_equal(files_of(ckpt, MANIFEST_MODEL), 3);
	assert_int_equal(files_of(ckpt, MANIFEST_OPTIMIZER), 3);
	assert_true(ckpt_manifest(ckpt)->validation_loss == 2.0 / 7);
	ckpt_close(ckpt);
}

static void state_and_values(void **state)
{
	struct ckpt *ckpt = read_golden("v2", 4);
	assert_int_equal(ckpt_manifest(ckpt)->version, 2);
	assert_int_equal(files_of(ckpt, MANIFEST_STATE), 1);
	assert_int_equal(files_of(ckpt, MANIFEST_VALUES), 1);
	ckpt_close(ckpt);
	ckpt = read_golden("v2-boxes", 6);
	assert_int_equal(files_of(ckpt, MANIFEST_STATE), 4);
	ckpt_close(ckpt);
}

static void statistics_without_slices(void **state)
{
	static const float expected[] = { 0x1.4e3f0ap+3f, 0x1.0c8052p+3f, 0x1.c12352p+4f };
	struct ckpt *ckpt = open_golden("v1-statistics", 3);
	float variance[3];
	int64_t batches;
	assert_int_equal(ckpt_read_tensor(ckpt, "1.num_batches_tracked", 0, 1, &batches, NULL), 0);
	assert_int_equal(batches, 3);
	assert_int_equal(ckpt_read_tensor(ckpt, "1.running_var", 0, 3, variance, NULL), 0);
	assert_memory_equal(variance, expected, sizeof expected);
	assert_true(ckpt_has_state(ckpt, "1.weight"));
	assert_false(ckpt_has_state(ckpt, "1.running_var"));
	assert_false(ckpt_has_state(ckpt, "1.num_batches_tracked"));
	ckpt_close(ckpt);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_one),
		cmocka_unit_test(shards_of_three_writers),
		cmocka_unit_test(statistics_without_slices),
		cmocka_unit_test(state_and_values),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
