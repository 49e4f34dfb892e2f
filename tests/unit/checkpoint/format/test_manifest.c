/* SPDX-License-Identifier: Apache-2.0 */
/* manifest: what is encoded parses back to the same bytes, no changed bit passes, and a text whose
 * hash is right but whose content is not is refused all the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/format/manifest.h"
#include "common/auto.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static struct manifest *sample(void)
{
	struct manifest *manifest = manifest_create();
	manifest->step = 1000;
	manifest->attempt = 3;
	strcpy(manifest->token, TOKEN);
	manifest->world_size = 8;
	manifest->time = 1767225600.123456789;
	manifest->seed = UINT64_MAX;
	manifest->cursor = 16000;
	manifest->loss = 0.1;
	manifest->validation_loss = 0.3;
	manifest->config = json_pack("{s:{s:s, s:f}, s:{}, s:{}}", "identity", "model", "gpt2",
		"dropout", 0.1, "schedule", "operation");
	manifest->numerics = json_pack("{s:s}", "reduction", "canonical");
	struct manifest_file *file =
		manifest_add_file(manifest, "model.safetensors", MANIFEST_MODEL, MANIFEST_CHUNK + 1ull);
	file->hash = hash_bytes("whole", 5);
	file->chunks[0] = hash_bytes("first", 5);
	file->chunks[1] = hash_bytes("last", 4);
	manifest_add_file(manifest, "config.json", MANIFEST_CONFIG, 0);
	return manifest;
}

static char *sample_text(size_t *size)
{
	struct manifest *manifest = sample();
	struct err err;
	char *text = NULL;
	if (manifest_encode(manifest, &text, size, &err) < 0)
		fail_msg("%s", err.text);
	manifest_destroy(manifest);
	return text;
}

static void encoded_text_parses_back(void **state)
{
	size_t size, again_size;
	AUTO_FREE char *text = sample_text(&size), *again = NULL;
	struct err err;
	bool newer;
	struct manifest *want = sample(), *found = manifest_parse(text, size, &newer, &err);
	if (!found)
		fail_msg("%s", err.text);
	assert_false(newer);
	assert_int_equal(found->step, want->step);
	assert_int_equal(found->attempt, want->attempt);
	assert_string_equal(found->token, want->token);
	assert_int_equal(found->world_size, want->world_size);
	assert_true(found->time == want->time);
	assert_true(found->seed == want->seed);
	assert_int_equal(found->cursor, want->cursor);
	assert_true(found->loss == want->loss);
	assert_true(found->validation_loss == want->validation_loss);
	assert_true(json_equal(found->config, want->config));
	assert_true(json_equal(found->numerics, want->numerics));
	assert_int_equal(found->file_count, 2);
	assert_int_equal(found->files[0].role, MANIFEST_MODEL);
	assert_int_equal(found->files[0].size, MANIFEST_CHUNK + 1ull);
	assert_true(hash_equal(found->files[0].hash, want->files[0].hash));
	assert_int_equal(found->files[0].chunk_count, 2);
	assert_true(hash_equal(found->files[0].chunks[1], want->files[0].chunks[1]));
	assert_int_equal(found->files[1].chunk_count, 0);
	assert_ptr_equal(manifest_find(found, "config.json"), &found->files[1]);
	assert_null(manifest_find(found, "none"));
	assert_int_equal(manifest_encode(found, &again, &again_size, &err), 0);
	assert_int_equal(again_size, size);
	assert_memory_equal(again, text, size);
	free(again);
	again = NULL;
	manifest_destroy(found);
	manifest_destroy(want);
	/* Any JSON reader can read it. */
	json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	assert_true(json_is_string(json_object_get(json, "self")));
	json_decref(json);
}

/* The sample's text with `from` replaced by `to` and its own hash made anew. */
static char *replaced(const char *text, const char *from, const char *to, size_t *size)
{
	char *at = strstr(text, from), hex[HASH_HEX_SIZE];
	if (!at)
		fail_msg("there is no %s", from);
	char *out = malloc(strlen(text) + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	*size = strlen(out);
	char *self = strstr(out, ",\n \"self\"");
	hash_hex(hash_bytes(out, (size_t)(self - out)), hex);
	memcpy(self + strlen(",\n \"self\": \""), hex, HASH_HEX_SIZE - 1);
	return out;
}

static char *altered(const char *from, const char *to, size_t *size)
{
	AUTO_FREE char *text = sample_text(size);
	return replaced(text, from, to, size);
}

static void an_unknown_loss_is_null(void **state)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	struct err err;
	struct manifest *manifest = sample();
	manifest->loss = manifest->validation_loss = NAN;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), 0);
	manifest_destroy(manifest);
	assert_non_null(strstr(text, "\"loss\": null"));
	assert_non_null(strstr(text, "\"validation_loss\": null"));
	manifest = manifest_parse(text, size, NULL, &err);
	assert_true(isnan(manifest->loss) && isnan(manifest->validation_loss));
	manifest_destroy(manifest);
}

static void a_part_is_no_manifest_and_has_its_number(void **state)
{
	AUTO_FREE char *text = NULL;
	size_t size;
	struct err err;
	struct manifest *manifest = sample();
	manifest->part = 1;
	manifest->parts = 4;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), 0);
	assert_null(manifest_parse(text, size, NULL, &err));
	struct manifest *found = manifest_parse_part(text, size, &err);
	assert_non_null(found);
	assert_int_equal(found->part, 1);
	assert_int_equal(found->parts, 4);
	manifest_destroy(found);
	manifest->part = 4;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), -1);
	manifest_destroy(manifest);
	free(AUTO_TAKE(text));
	text = sample_text(&size);
	assert_null(manifest_parse_part(text, size, &err));
}

static void every_flipped_bit_is_found(void **state)
{
	size_t size;
	AUTO_FREE char *text = sample_text(&size);
	struct err err;
	for (size_t bit = 0; bit < 8 * size; bit++) {
		text[bit / 8] ^= (char)(1 << bit % 8);
		struct manifest *found = manifest_parse(text, size, NULL, &err);
		if (found)
			fail_msg("bit %zu of byte %zu may be flipped", bit % 8, bit / 8);
		assert_int_equal(err.status, EXIT_DATA);
		text[bit / 8] ^= (char)(1 << bit % 8);
	}
}

static void every_shortened_text_is_found(void **state)
{
	size_t size;
	AUTO_FREE char *text = sample_text(&size);
	for (size_t cut = 0; cut < size; cut++) {
		struct err err;
		AUTO_FREE char *part = malloc(cut + 1);
		memcpy(part, text, cut);
		assert_null(manifest_parse(part, cut, NULL, &err));
	}
}

static void refuses(const char *from, const char *to, const char *why)
{
	size_t size;
	struct err err;
	AUTO_FREE char *text = altered(from, to, &size);
	struct manifest *found = manifest_parse(text, size, NULL, &err);
	if (found)
		fail_msg("accepted: %s", to);
	if (!strstr(err.text, why))
		fail_msg("%s: refused with \"%s\", not \"%s\"", to, err.text, why);
	assert_int_equal(err.status, EXIT_DATA);
}

static void wrong_content_is_refused(void **state)
{
	refuses("muster-checkpoint", "else", "not one of a checkpoint");
	refuses("\"version\": 1", "\"version\": 0", "version");
	refuses("\"version\": 1", "\"version\": \"1\"", "version");
	refuses("\"step\": 1000", "\"step\": -1", "step");
	refuses("\"step\": 1000", "\"step\": 1e3", "step");
	refuses("\"step\": 1000", "\"stop\": 1000", "step");
	refuses("\"step\": 1000", "\"step\": 1000, \"step\": 1000", "not valid JSON");
	refuses("\"attempt\": 3", "\"attempt\": 2147483648", "attempt");
	refuses(TOKEN, "0123", "token");
	refuses(TOKEN, "0123456789ABCDEF0123456789abcdef", "token");
	refuses("\"world_size\": 8", "\"world_size\": 0", "world_size");
	refuses("\"time\": 17", "\"time\": -17", "time");
	refuses("\"18446744073709551615\"", "\"18446744073709551616\"", "seed");
	refuses("\"18446744073709551615\"", "\"-1\"", "seed");
	refuses("\"18446744073709551615\"", "\"007\"", "seed");
	refuses("\"18446744073709551615\"", "7", "seed");
	refuses("\"cursor\": 16000", "\"cursor\": -16000", "cursor");
	refuses("\"validation_loss\": 0", "\"validation_loss\": \"x\", \"x\": 0", "validation_loss");
	refuses("\"schedule\"", "\"shedule\"", "config");
	refuses("\"numerics\"", "\"numerix\"", "numerics");
	refuses("\"files\"", "\"file\"", "files");
	refuses("\"chunk_size\": 16777216", "\"chunk_size\": 16777217", "chunk_size");
	refuses("\"model.safetensors\"", "\"../model.safetensors\"", "name");
	refuses("\"model.safetensors\"", "\".model.safetensors\"", "name");
	refuses("\"model.safetensors\"", "\"manifest.json\"", "name");
	refuses("\"model.safetensors\"", "\"\"", "name");
	refuses("\"model.safetensors\"", "\"config.json\"", "name");
	refuses("\"role\": \"model\"", "\"role\": \"models\"", "role");
	refuses("\"size\": 16777217", "\"size\": 16777216", "one hash a chunk");
	refuses("\"size\": 16777217", "\"size\": 9223372036854775807", "one hash a chunk");
	refuses("\"size\": 0", "\"size\": 1", "one hash a chunk");
}

static void a_newer_version_is_no_damage(void **state)
{
	size_t size;
	struct err err;
	bool newer;
	AUTO_FREE char *text = altered("\"version\": 1", "\"version\": 3", &size);
	assert_null(manifest_parse(text, size, &newer, &err));
	assert_true(newer);
	assert_non_null(strstr(err.text, "newer Muster"));
	text[10] ^= 1;
	assert_null(manifest_parse(text, size, &newer, &err));
	assert_false(newer);
}

/* The version is the lowest that has all roles, so that an older program reads what it can. */
static void new_roles_raise_the_version(void **state)
{
	size_t size;
	struct err err;
	struct manifest *manifest = sample();
	AUTO_FREE char *text = sample_text(&size);
	assert_non_null(strstr(text, "\"version\": 1,"));
	for (enum manifest_role role = MANIFEST_STATE; role <= MANIFEST_VALUES; role++) {
		AUTO_FREE char *more = NULL, *older = NULL;
		manifest->files[0].role = role;
		assert_int_equal(manifest_encode(manifest, &more, &size, &err), 0);
		struct manifest *found = manifest_parse(more, size, NULL, &err);
		assert_int_equal(found->version, 2);
		assert_int_equal(found->files[0].role, role);
		manifest_destroy(found);
		older = replaced(more, "\"version\": 2", "\"version\": 1", &size);
		assert_null(manifest_parse(older, size, NULL, &err));
		assert_non_null(strstr(err.text, "no known role"));
	}
	manifest->files[1].role = MANIFEST_VALUES;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), -1);
	assert_non_null(strstr(err.text, "the role of a file"));
	manifest_destroy(manifest);
}

static void unknown_members_are_ignored(void **state)
{
	size_t size;
	struct err err;
	AUTO_FREE char *text =
		altered("\"attempt\": 3", "\"attempt\": 3, \"later\": {\"a\": []}", &size);
	struct manifest *found = manifest_parse(text, size, NULL, &err);
	assert_non_null(found);
	manifest_destroy(found);
}

/* As in checkpoints from before there was one. */
static void a_missing_validation_loss_is_not_known(void **state)
{
	size_t size;
	struct err err;
	AUTO_FREE char *text = altered("\"validation_loss\"", "\"another\"", &size);
	struct manifest *found = manifest_parse(text, size, NULL, &err);
	assert_non_null(found);
	assert_true(isnan(found->validation_loss));
	manifest_destroy(found);
}

static void encode_refuses_what_parse_would(void **state)
{
	char *text;
	size_t size;
	struct err err;
	struct manifest *manifest = sample();
	manifest->step = -1;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), -1);
	manifest->step = 1;
	manifest->loss = INFINITY;
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), -1);
	manifest->loss = 1;
	strcpy(manifest->files[1].name, manifest->files[0].name);
	assert_int_equal(manifest_encode(manifest, &text, &size, &err), -1);
	manifest_destroy(manifest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(encoded_text_parses_back),
		cmocka_unit_test(an_unknown_loss_is_null),
		cmocka_unit_test(a_part_is_no_manifest_and_has_its_number),
		cmocka_unit_test(every_flipped_bit_is_found),
		cmocka_unit_test(every_shortened_text_is_found),
		cmocka_unit_test(wrong_content_is_refused),
		cmocka_unit_test(a_newer_version_is_no_damage),
		cmocka_unit_test(new_roles_raise_the_version),
		cmocka_unit_test(unknown_members_are_ignored),
		cmocka_unit_test(a_missing_validation_loss_is_not_known),
		cmocka_unit_test(encode_refuses_what_parse_would),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
