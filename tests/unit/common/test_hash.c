/* SPDX-License-Identifier: Apache-2.0 */
/* hash: XXH3-128's known answers, in one piece and in many, and the digits of our files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/hash.h"
#include "common/hash_xxh3.h"

/* xxHash's own sanity check: its buffer and its answers for seed 0. */
static const struct {
	size_t size;
	struct hash128 hash;
} answers[] = {
	{ 0, { UINT64_C(0x6001c324468d497f), UINT64_C(0x99aa06d3014798d8) } },
	{ 1, { UINT64_C(0xc44bdff4074eecdb), UINT64_C(0xa6cd5e9392000f6a) } },
	{ 6, { UINT64_C(0x3e7039bdda43cfc6), UINT64_C(0x082afe0b8162d12a) } },
	{ 12, { UINT64_C(0x061a192713f69ad9), UINT64_C(0x6e3efd8fc7802b18) } },
	{ 24, { UINT64_C(0x1e7044d28b1b901d), UINT64_C(0x0ce966e4678d3761) } },
	{ 48, { UINT64_C(0xf942219aed80f67b), UINT64_C(0xa002ac4e5478227e) } },
	{ 81, { UINT64_C(0x5e8bafb9f95fb803), UINT64_C(0x4952f58181ab0042) } },
	{ 222, { UINT64_C(0xf1aebd597cec6b3a), UINT64_C(0x337e09641b948717) } },
	{ 403, { UINT64_C(0xcdeb804d65c6dea4), UINT64_C(0x1b6de21e332dd73d) } },
	{ 512, { UINT64_C(0x617e49599013cb6b), UINT64_C(0x18d2d110dcc9bca1) } },
	{ 2048, { UINT64_C(0xdd59e2c3a5f038e0), UINT64_C(0xf736557fd47073a5) } },
	{ 2240, { UINT64_C(0x6e73a90539cf2948), UINT64_C(0xccb134fbfa7ce49d) } },
	{ 2367, { UINT64_C(0xcb37aeb9e5d361ed), UINT64_C(0xe89c0f6ff369b427) } },
};

static unsigned char buffer[2367];

static int fill(void **state)
{
	uint64_t generator = 2654435761u;
	for (size_t i = 0; i < sizeof buffer; i++) {
		buffer[i] = (unsigned char)(generator >> 56);
		generator *= UINT64_C(0x9e3779b185ebca8d);
	}
	return 0;
}

static void known_answers(void **state)
{
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
		assert_true(hash_equal(hash_bytes(buffer, answers[i].size), answers[i].hash));
}

static void pieces_give_the_whole(void **state)
{
	static const size_t steps[] = { 1, 7, 64, 255, 256, 257, 1024, 2367 };
	struct hasher *hasher = hasher_create();
	assert_non_null(hasher);
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
		for (size_t s = 0; s < sizeof steps / sizeof steps[0]; s++) {
			hasher_reset(hasher);
			for (size_t at = 0; at < answers[i].size; at += steps[s]) {
				size_t left = answers[i].size - at;
				hasher_add(hasher, buffer + at, left < steps[s] ? left : steps[s]);
			}
			assert_true(hash_equal(hasher_value(hasher), answers[i].hash));
			assert_true(
				hash_equal(hasher_value(hasher), answers[i].hash)); /* asking changes nothing */
		}
	hasher_destroy(hasher);
	hasher_destroy(NULL);
}

/* A hash of 70 KB by one way, in one piece and in many. */
static void compare_ways(const struct hash_xxh3 *one, const struct hash_xxh3 *other)
{
	static unsigned char data[70000];
	XXH3_state_t *state = XXH3_createState();
	assert_non_null(state);
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (unsigned char)(buffer[i % sizeof buffer] ^ i >> 8);
	for (size_t size = 0; size <= sizeof data; size += size < 2100 ? 1 : 1931) {
		const XXH128_hash_t hash = one->bytes(data, size);
		assert_true(XXH128_isEqual(hash, other->bytes(data, size)));
		XXH3_128bits_reset(state);
		for (size_t at = 0, step = 1; at < size; at += step, step = step * 3 % 5003) {
			size_t left = size - at;
			other->add(state, data + at, left < step ? left : step);
		}
		assert_true(XXH128_isEqual(hash, XXH3_128bits_digest(state)));
	}
	XXH3_freeState(state);
}

static void every_way_gives_the_same(void **state)
{
	const struct hash_xxh3 *best = hash_xxh3_choose();
	assert_non_null(best->add);
	compare_ways(&hash_plain, best);
	compare_ways(best, &hash_plain);
}

static void digits_go_there_and_back(void **state)
{
	char text[HASH_HEX_SIZE];
	struct hash128 back;
	assert_string_equal(hash_hex(answers[0].hash, text), "99aa06d3014798d86001c324468d497f");
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		assert_int_equal(hash_parse(hash_hex(answers[i].hash, text), &back), 0);
		assert_true(hash_equal(back, answers[i].hash));
	}
	assert_string_equal(hash_hex((struct hash128) { 1, 0 }, text),
		"00000000000000000000000000000001");
}

static void other_text_is_refused(void **state)
{
	static const char *const bad[] = { "", "99aa06d3014798d86001c324468d497",
		"99aa06d3014798d86001c324468d497f0", "99AA06D3014798D86001C324468D497F",
		"99aa06d3014798d86001c324468d497g", "0x9aa06d3014798d86001c324468d497",
		" 9aa06d3014798d86001c324468d497f" };
	struct hash128 hash;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(hash_parse(bad[i], &hash), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(pieces_give_the_whole),
		cmocka_unit_test(every_way_gives_the_same),
		cmocka_unit_test(digits_go_there_and_back),
		cmocka_unit_test(other_text_is_refused),
	};
	return cmocka_run_group_tests(tests, fill, NULL);
}
