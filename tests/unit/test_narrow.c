/* SPDX-License-Identifier: Apache-2.0 */
/* narrow: BF16 is the nearest, ties to even, for every upper half and every kind of lower half. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/narrow.h"
#include "common/bytes.h"

/* The nearest of both neighbours, by their distance in double precision. */
static uint16_t nearest(float value)
{
	uint32_t bits = bytes_of_float(value);
	uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
	double down = fabs((double)value) - fabs((double)bytes_bf16_to_float(low));
	/* Above the largest finite number comes 2^128, as far as rounding is concerned. */
	double above = (high & 0x7fff) == 0x7f80 ? 0x1p128 : fabs((double)bytes_bf16_to_float(high));
	double up = above - fabs((double)value);
	return down < up || (down == up && low % 2 == 0) ? low : high;
}

static void every_upper_half_rounds_to_the_nearest(void **state)
{
	static const uint32_t lower[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
	for (uint32_t upper = 0; upper < 0x10000; upper++)
		for (size_t i = 0; i < sizeof lower / sizeof lower[0]; i++) {
			float value = bytes_to_float(upper << 16 | lower[i]);
			uint16_t found = narrow_to_bf16(value);
			if (isnan(value)) {
				assert_true(isnan(bytes_bf16_to_float(found)));
				assert_int_equal(found >> 15, upper >> 15);
			} else if (isinf(value)) {
				assert_int_equal(found, upper);
			} else {
				assert_int_equal(found, nearest(value));
			}
		}
}

static void what_was_narrow_stays_as_it_is(void **state)
{
	for (uint32_t bits = 0; bits < 0x10000; bits++) {
		float value = bytes_bf16_to_float((uint16_t)bits);
		if (!isnan(value))
			assert_int_equal(narrow_to_bf16(value), bits);
	}
}

static void arrays_are_widened_at_any_address(void **state)
{
	static const float want[3] = { 1.0f, -2.5f, 0x1p-24f };
	unsigned char bytes[16];
	float out[3];
	static const uint16_t f16[3] = { 0x3c00, 0xc100, 0x0001 };
	for (int i = 0; i < 3; i++)
		bytes_put_le16(bytes + 1 + 2 * i, f16[i]);
	narrow_widen(SAFETENSORS_F16, bytes + 1, 3, out);
	assert_memory_equal(out, want, sizeof want);
	for (int i = 0; i < 3; i++)
		bytes_put_le16(bytes + 1 + 2 * i, narrow_to_bf16(want[i]));
	narrow_widen(SAFETENSORS_BF16, bytes + 1, 3, out);
	assert_memory_equal(out, want, sizeof want);
	memcpy(bytes + 1, want, sizeof want);
	narrow_widen(SAFETENSORS_F32, bytes + 1, 3, out);
	assert_memory_equal(out, want, sizeof want);
	assert_true(narrow_is_float(SAFETENSORS_F16) && narrow_is_float(SAFETENSORS_BF16) && narrow_is_float(SAFETENSORS_F32));
	assert_false(narrow_is_float(SAFETENSORS_F64) || narrow_is_float(SAFETENSORS_I32));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_upper_half_rounds_to_the_nearest),
		cmocka_unit_test(what_was_narrow_stays_as_it_is),
		cmocka_unit_test(arrays_are_widened_at_any_address),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
