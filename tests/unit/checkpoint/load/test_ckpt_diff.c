/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_diff: what differs between values, tensors, states and configurations. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/load/ckpt_diff.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/files.h"

static struct ckpt_difference compare(const float *a, const float *b, size_t count)
{
	struct ckpt_difference difference = { .same = true };
	ckpt_diff_floats(&difference, a, b, count);
	return difference;
}

static void values_are_compared_by_bits(void **state)
{
	const float a[] = { 1, -2, 0, NAN, 4 }, b[] = { 1, -2.5f, -0.0f, NAN, 3 };
	struct ckpt_difference d = compare(a, a, 5);
	assert_true(d.same && d.differing == 0 && d.absolute == 0 && d.relative == 0);
	d = compare(a, b, 5);
	assert_true(!d.same && d.differing == 3 && d.absolute == 1 && d.relative == 0.25);
	d = compare(a + 2, b + 2, 1);
	assert_true(!d.same && d.differing == 1 && d.absolute == 0 && d.relative == 0);
	const float bad[] = { 1, INFINITY };
	d = compare(bad, a, 2);
	assert_true(!d.same && isinf(d.absolute) && isinf(d.relative));
	d = compare((float[]) { NAN }, (float[]) { 1 }, 1);
	assert_true(!d.same && isinf(d.absolute));
	const float huge[] = { 3e38f }, other[] = { -3e38f };
	d = compare(huge, other, 1);
	assert_true(isfinite(d.absolute) && d.relative == 2);
}

/* Two saves of the same step, the second changed by `change`, and what is found of each tensor. */
struct found {
	struct ckpt_tensor_diff diffs[8];
	char names[8][96];
	int count;
	uint64_t bytes, expected; /* read; that a comparison of everything reads */
};

static int keep(void *arg, const struct ckpt_tensor_diff *diff)
{
	struct found *found = arg;
	snprintf(found->names[found->count], sizeof found->names[0], "%s", diff->name);
	found->diffs[found->count++] = *diff;
	return 0;
}

static void count_bytes(void *arg, uint64_t bytes)
{
	((struct found *)arg)->bytes += bytes;
}

static struct ckpt *save(const char *name, const struct ckpt_sample *sample)
{
	struct ckpt_dir dir;
	struct owner owner = { .attempt = 0 };
	struct ckpt *ckpt;
	struct err err;
	if (ckpt_dir_open(&dir, files_path(name), &err) < 0
		|| owner_claim(&dir, &owner, NULL, NULL, 5, &err) < 0
		|| ckpt_save(&dir, &sample->snapshot, owner.token, NULL, NULL, &err) < 0
		|| ckpt_open(&dir, 1, 0.2, &ckpt, &err) < 0)
		fail_msg("%s", err.text);
	ckpt_dir_close(&dir);
	return ckpt;
}

static struct found diff(const char *name, const struct ckpt_sample *a, const struct ckpt_sample *b)
{
	char names[2][64];
	struct err err;
	struct found found = { .count = 0 };
	snprintf(names[0], sizeof names[0], "%s-a", name);
	snprintf(names[1], sizeof names[1], "%s-b", name);
	struct ckpt *left = save(names[0], a), *right = save(names[1], b);
	if (ckpt_diff(left, right, keep, count_bytes, &found, &err) < 0)
		fail_msg("%s", err.text);
	found.expected = ckpt_diff_bytes(left) + ckpt_diff_bytes(right);
	ckpt_close(left);
	ckpt_close(right);
	return found;
}

/* The sample's tensors by name: h.0…c_attn.bias (BF16, no state), ln_f.bias, wte.weight. */
static void equal_checkpoints_do_not_differ(void **state)
{
	struct ckpt_sample a, b;
	ckpt_sample_fill(&a, 1);
	ckpt_sample_fill(&b, 1);
	struct found found = diff("equal", &a, &b);
	assert_int_equal(found.count, 3);
	assert_int_equal(found.bytes, found.expected);
	for (int t = 0; t < 3; t++)
		assert_true(ckpt_diff_same(&found.diffs[t]));
	assert_string_equal(found.names[0], "transformer.h.0.attn.c_attn.bias");
	assert_int_equal(found.diffs[0].kind[0], CKPT_DIFF_COMPARED);
	assert_int_equal(found.diffs[0].kind[1], CKPT_DIFF_NONE);
	assert_int_equal(found.diffs[2].kind[3], CKPT_DIFF_COMPARED);
}

/* The state's tensors come after the model's; those that fp32 can't hold are compared exactly. */
static void the_state_is_compared_bit_by_bit(void **state)
{
	struct ckpt_sample a, b;
	ckpt_sample_fill(&a, 1);
	ckpt_sample_add_state(&a);
	ckpt_sample_fill(&b, 1);
	ckpt_sample_add_state(&b);
	struct found found = diff("state-1", &a, &b);
	assert_int_equal(found.count, CKPT_SAMPLE_TENSORS + 4);
	assert_int_equal(found.bytes, found.expected);
	for (int t = 0; t < found.count; t++)
		assert_true(ckpt_diff_same(&found.diffs[t]));
	assert_string_equal(found.names[3], "average");
	/* 2^60 and 2^60 + 1 are one number in fp64. */
	a.updates = (int64_t)1 << 60;
	b.updates = a.updates + 1;
	b.generator[7] ^= 0x81;
	b.average[9] += 0.25f;
	found = diff("state-2", &a, &b);
	const struct ckpt_tensor_diff *average = &found.diffs[3], *generator = &found.diffs[4],
								  *nothing = &found.diffs[5], *updates = &found.diffs[6];
	assert_true(average->difference[0].differing == 1 && average->difference[0].absolute == 0.25);
	assert_true(generator->difference[0].differing == 1
		&& generator->difference[0].absolute == fabs(a.generator[7] - (double)b.generator[7]));
	assert_true(ckpt_diff_same(nothing));
	assert_true(!ckpt_diff_same(updates) && updates->difference[0].differing == 1
		&& updates->difference[0].absolute == 0);
	/* Another type, and none at all. */
	ckpt_sample_fill(&b, 1);
	ckpt_sample_add_state(&b);
	b.tensors[CKPT_SAMPLE_TENSORS + 3].dtype = SAFETENSORS_U64;
	b.tensors[CKPT_SAMPLE_TENSORS + 4] = b.tensors[CKPT_SAMPLE_TENSORS + 5];
	b.snapshot.tensor_count--;
	found = diff("state-3", &a, &b);
	assert_int_equal(found.diffs[6].kind[0], CKPT_DIFF_TYPE);
	assert_int_equal(found.diffs[4].kind[0], CKPT_DIFF_ONLY_A);
	ckpt_sample_fill(&b, 1);
	found = diff("state-4", &a, &b);
	assert_int_equal(found.count, CKPT_SAMPLE_TENSORS + 4);
	assert_int_equal(found.diffs[2].kind[0], CKPT_DIFF_COMPARED);
	assert_int_equal(found.diffs[3].kind[0], CKPT_DIFF_ONLY_A);
}

static void one_changed_value_is_found_where_it_is(void **state)
{
	struct ckpt_sample a, b;
	ckpt_sample_fill(&a, 1);
	ckpt_sample_fill(&b, 1);
	b.state[SNAPSHOT_V][0][34] +=
		0.5f; /* the last element of wte, in the slice that is listed first */
	struct found found = diff("one", &a, &b);
	assert_true(ckpt_diff_same(&found.diffs[0]) && ckpt_diff_same(&found.diffs[1])
		&& !ckpt_diff_same(&found.diffs[2]));
	assert_true(found.diffs[2].difference[0].same && found.diffs[2].difference[1].same
		&& found.diffs[2].difference[2].same);
	assert_true(found.diffs[2].difference[3].absolute == 0.5
		&& found.diffs[2].difference[3].differing == 1);
}

static void shapes_types_and_missing_ones_are_told(void **state)
{
	struct ckpt_sample a, b;
	static const float wide[3] = { 1, 2, 3 };
	ckpt_sample_fill(&a, 1);
	ckpt_sample_fill(&b, 1);
	a.half[0] = 0x3f80;
	a.half[1] = 0x4000;
	a.half[2] = 0x4040;
	b.tensors[0].dtype = SAFETENSORS_F32;
	b.tensors[0].data = wide;
	b.tensors[1].shape[0] = 5;
	b.tensors[1].shape[1] = 7;
	b.tensors[2].name = "z.other";
	b.slices[1].tensor = "z.other";
	struct found found = diff("kinds", &a, &b);
	assert_int_equal(found.count, 4);
	assert_true(found.diffs[0].dtypes_differ && found.diffs[0].difference[0].same
		&& !ckpt_diff_same(&found.diffs[0]));
	assert_int_equal(found.diffs[1].kind[0], CKPT_DIFF_ONLY_A);
	assert_int_equal(found.diffs[1].kind[2], CKPT_DIFF_ONLY_A);
	assert_int_equal(found.diffs[2].kind[0], CKPT_DIFF_SHAPE);
	assert_int_equal(found.diffs[2].kind[1], CKPT_DIFF_SHAPE);
	assert_int_equal(found.diffs[3].kind[0], CKPT_DIFF_ONLY_B);
	assert_string_equal(found.names[3], "z.other");
	for (int t = 0; t < 4; t++)
		assert_false(ckpt_diff_same(&found.diffs[t]));
}

static void a_model_without_states_is_compared_with_one_that_has(void **state)
{
	struct ckpt_sample a, b;
	ckpt_sample_fill(&a, 1);
	ckpt_sample_fill(&b, 1);
	b.snapshot.slice_count = 0;
	struct found found = diff("states", &a, &b);
	assert_true(ckpt_diff_same(&found.diffs[0]) && !ckpt_diff_same(&found.diffs[1]));
	assert_true(
		found.diffs[1].kind[0] == CKPT_DIFF_COMPARED && found.diffs[1].kind[1] == CKPT_DIFF_ONLY_A);
}

static void settings_are_named_by_their_path(void **state)
{
	json_t *a =
		json_pack("{s:{s:i, s:i}, s:[i], s:s}", "x", "same", 1, "old", 2, "list", 3, "t", "u");
	json_t *b =
		json_pack("{s:{s:i, s:i}, s:[i], s:s}", "x", "same", 1, "new", 2, "list", 4, "t", "u");
	json_t *found = ckpt_diff_json(a, b);
	json_t *want = json_pack("[{s:s, s:i}, {s:s, s:i}, {s:s, s:[i], s:[i]}]", "name", "x.old", "a",
		2, "name", "x.new", "b", 2, "name", "list", "a", 3, "b", 4);
	assert_true(json_equal(found, want));
	json_decref(found);
	found = ckpt_diff_json(a, a);
	assert_int_equal(json_array_size(found), 0);
	json_decref(found);
	json_decref(want);
	json_decref(a);
	json_decref(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_are_compared_by_bits),
		cmocka_unit_test(equal_checkpoints_do_not_differ),
		cmocka_unit_test(the_state_is_compared_bit_by_bit),
		cmocka_unit_test(one_changed_value_is_found_where_it_is),
		cmocka_unit_test(shapes_types_and_missing_ones_are_told),
		cmocka_unit_test(a_model_without_states_is_compared_with_one_that_has),
		cmocka_unit_test(settings_are_named_by_their_path),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
