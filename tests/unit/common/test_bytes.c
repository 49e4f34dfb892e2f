/* SPDX-License-Identifier: Apache-2.0 */
/* bytes: little-endian at any address, and the bits of floats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/bytes.h"

static void integers_are_little_endian_at_any_address(void **state)
{
	static const unsigned char wanted[8] = { 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x81 };
	for (size_t shift = 0; shift < 8; shift++) {
		unsigned char memory[24];
		memset(memory, 0xee, sizeof memory);
		bytes_put_le64(memory + 1 + shift, UINT64_C(0x8102030405060708));
		assert_memory_equal(memory + 1 + shift, wanted, 8);
		assert_int_equal(memory[shift], 0xee);
		assert_int_equal(memory[9 + shift], 0xee);
		assert_true(bytes_le64(memory + 1 + shift) == UINT64_C(0x8102030405060708));
		assert_int_equal(bytes_le32(memory + 1 + shift), 0x05060708);
		assert_int_equal(bytes_le16(memory + 1 + shift), 0x0708);
		bytes_put_le32(memory + 1 + shift, 0xa1a2a3a4);
		bytes_put_le16(memory + 1 + shift, 0xb1b2);
		assert_true(bytes_le64(memory + 1 + shift) == UINT64_C(0x81020304a1a2b1b2));
	}
}

static void floats_keep_their_bits(void **state)
{
	assert_int_equal(bytes_of_float(1.0f), 0x3f800000);
	assert_int_equal(bytes_of_float(-0.0f), 0x80000000);
	assert_int_equal(bytes_of_float(-INFINITY), 0xff800000);
	assert_int_equal(bytes_of_float(bytes_to_float(0x00000001)), 0x00000001);
	assert_true(isnan(bytes_to_float(0x7fc12345)));
	assert_int_equal(bytes_of_float(bytes_to_float(0x7fc12345)), 0x7fc12345);
}

static void halves_become_floats(void **state)
{
	static const struct {
		uint16_t half;
		float value;
	} f16[] = {
		{ 0x0000, 0.0f },
		{ 0x3c00, 1.0f },
		{ 0xc000, -2.0f },
		{ 0x3555, 0x1.554p-2f },
		{ 0x7bff, 65504.0f },
		{ 0x0400, 0x1p-14f },
		{ 0x03ff, 0x1.ff8p-15f },
		{ 0x8001, -0x1p-24f },
		{ 0x7c00, INFINITY },
		{ 0xfc00, -INFINITY },
	};
	for (size_t i = 0; i < sizeof f16 / sizeof f16[0]; i++)
		assert_true(bytes_f16_to_float(f16[i].half) == f16[i].value);
	assert_int_equal(bytes_of_float(bytes_f16_to_float(0x8000)), 0x80000000);
	assert_true(isnan(bytes_f16_to_float(0x7e00)));
	assert_true(bytes_bf16_to_float(0x3f80) == 1.0f);
	assert_int_equal(bytes_of_float(bytes_bf16_to_float(0xff81)), 0xff810000);
	/* Every number grows with its bits. */
	for (uint16_t half = 1; half <= 0x7c00; half++)
		assert_true(bytes_f16_to_float(half) > bytes_f16_to_float((uint16_t)(half - 1)));
}

/* Every bfloat16 value comes back, halves go to the even neighbour, and what is too large becomes
 * infinite. */
static void bf16_is_rounded_to_nearest(void **state)
{
	for (uint32_t v = 0; v < 0x10000; v++) {
		bool nan = (v & 0x7fff) > 0x7f80;
		assert_int_equal(bytes_float_to_bf16(bytes_bf16_to_float((uint16_t)v)), nan ? v | 0x40 : v);
		if (nan || (v & 0x7fff) == 0x7f80)
			continue;
		uint32_t bits = v << 16, even = v + (v & 1);
		assert_int_equal(bytes_float_to_bf16(bytes_to_float(bits | 0x7fff)), v);
		assert_int_equal(bytes_float_to_bf16(bytes_to_float(bits | 0x8000)), even);
		assert_int_equal(bytes_float_to_bf16(bytes_to_float(bits | 0x8001)), v + 1);
	}
	assert_int_equal(bytes_float_to_bf16(bytes_to_float(0x7f7fffff)), 0x7f80);
	assert_int_equal(bytes_float_to_bf16(bytes_to_float(0x7f800001)) & 0x7fff, 0x7fc0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_are_little_endian_at_any_address),
		cmocka_unit_test(floats_keep_their_bits),
		cmocka_unit_test(halves_become_floats),
		cmocka_unit_test(bf16_is_rounded_to_nearest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
