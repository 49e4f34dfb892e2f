/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_part: only the parts of one save are joined, each once, and nothing in their texts is
 * trusted. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/save/ckpt_part.h"
#include "checkpoint/save/ckpt_save.h"
#include "common/auto.h"
#include "tests/unit/checkpoint/save/ckpt_fixture.h"
#include "tests/unit/files.h"

#define OTHER_TOKEN "ffffffffffffffffffffffffffffffff"

static void part_refused(const char *text, size_t size, int64_t step, const char *token, int part,
	int parts)
{
	struct err err = { 0 };
	assert_int_equal(ckpt_part_check(text, size, step, token, part, parts, &err), -1);
	assert_int_equal(err.status, EXIT_DATA);
	assert_true(err.text[0]);
}

static void only_its_own_parts_are_taken(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	size_t size;
	ckpt_fixture_open(&run, files_path("check"));
	ckpt_fixture_save_parts(&run, 7, 2, 0);
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
	AUTO_FREE char *manifest = ckpt_fixture_join(&run, 7, &size);
	part_refused(manifest, size, 7, token, 0, 1);
	assert_null(manifest_parse(text, run.size[1], NULL, &err));
	/* Two times the same part. */
	char *texts[] = { run.text[0], run.text[0] };
	size_t sizes[] = { run.size[0], run.size[0] };
	assert_null(ckpt_part_join(texts, sizes, 2, 7, token, &err));
	assert_null(ckpt_part_join(texts, sizes, 0, 7, token, &err));
	assert_int_equal(ckpt_discard(&run.dir, 7, token, &err), 0);
	ckpt_fixture_close(&run);
}

/* The text of part 2 with the number after `member` changed, or a file's name. */
static char *altered(const struct ckpt_fixture *run, const char *from, const char *to, size_t *size)
{
	char hex[HASH_HEX_SIZE], *at = strstr(run->text[1], from);
	assert_non_null(at);
	char *out = malloc(run->size[1] + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - run->text[1]), run->text[1], to, at + strlen(from));
	char *self = strstr(out, ",\n \"self\"");
	memcpy(self + strlen(",\n \"self\": \""), hash_hex(hash_bytes(out, (size_t)(self - out)), hex),
		HASH_HEX_SIZE - 1);
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
		{ "\"plan\"", "\"plot\"", "differ in their lists of tensors" },
		{ "\"plan\": \"", "\"plan\": \"x", "the plan is not valid" },
		{ "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors", "have a file" },
		{ "\"part\": 2", "\"part\": 3", "part is missing" },
	};
	struct ckpt_fixture run;
	ckpt_fixture_open(&run, files_path("different"));
	ckpt_fixture_save_parts(&run, 7, 2, 0);
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
	ckpt_fixture_close(&run);
}

static void names_of_parts(void **state)
{
	static const char *const wrong[] = { "", "part-00001-of-00002", "part-1-of-2.json",
		"part-00003-of-00002.json", "part-00000-of-00002.json", "part-00001-of-00002.json.n",
		".part-00001-of-00002.json", "part--0001-of-00002.json", "part-000001-of-00002.json",
		"part-99999999999-of-99999999999.json" };
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
		cmocka_unit_test(only_its_own_parts_are_taken),
		cmocka_unit_test(parts_of_different_saves_are_not_joined),
		cmocka_unit_test(names_of_parts),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
