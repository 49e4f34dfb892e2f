/* SPDX-License-Identifier: Apache-2.0 */
/* number: a text is a number as a whole, in range, or none; what is refused leaves the value alone.
 */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/number.h"

static const char *const never[] = { "", " ", " 1", "1 ", "+1", "1x", "x1", "0x10", "1e3", "--1",
	"-", "1.5", "1\n", "99999999999999999999", "-99999999999999999999", "nan", "inf" };
#define NEVER (sizeof never / sizeof never[0])

static void whole_numbers(void **state)
{
	int64_t value = 77;
	for (size_t i = 0; i < NEVER; i++)
		if (number_whole(never[i], INT64_MIN, INT64_MAX, &value) || value != 77)
			fail_msg("\"%s\" was taken", never[i]);
	assert_false(number_whole("-0", 0, 9, &value));
	assert_false(number_whole("10", 0, 9, &value));
	assert_false(number_whole("-3", -2, 9, &value));
	assert_int_equal(value, 77);
	const int64_t good[] = { 0, 1, -1, 1234567890, INT64_MAX, INT64_MIN };
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		char text[32];
		snprintf(text, sizeof text, "%" PRId64, good[i]);
		assert_true(number_whole(text, INT64_MIN, INT64_MAX, &value));
		assert_int_equal(value, good[i]);
	}
	assert_true(number_whole("007", 0, 9, &value)); /* nodes and dates have leading zeros */
	assert_int_equal(value, 7);
}

static void all_64_bits_as_printed(void **state)
{
	uint64_t value = 77;
	for (size_t i = 0; i < NEVER; i++)
		assert_false(number_u64(never[i], &value));
	assert_false(number_u64("18446744073709551616", &value));
	assert_false(number_u64("-1", &value));
	assert_false(number_u64("00", &value));
	assert_int_equal(value, 77);
	assert_true(number_u64("18446744073709551615", &value));
	assert_true(value == UINT64_MAX);
	assert_true(number_u64("0", &value));
	assert_true(value == 0);
}

static void real_numbers(void **state)
{
	static const char *const bad[] = { "", "x", "1x", "1 ", "nan", "inf", "-inf", "1e999", "11",
		"-1" };
	double value = 77;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (number_real(bad[i], 0, 10, &value) || value != 77)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_true(number_real("1e-3", 0, 10, &value));
	assert_true(value == 1e-3);
}

static void sizes(void **state)
{
	static const char *const bad[] = { "", "K", "-1", "-1K", "1.5G", "4 GiB", "4gib", "1KK",
		"9223372036854775808", "8388608TiB", "1Kx" };
	static const struct {
		const char *text;
		int64_t bytes;
	} good[] = { { "0", 0 }, { "4096", 4096 }, { "17B", 17 }, { "64K", 65536 }, { "64KiB", 65536 },
		{ "2kB", 2000 }, { "500MB", 500000000 }, { "4GiB", (int64_t)4 << 30 },
		{ "1T", (int64_t)1 << 40 }, { "9223372036854775807", INT64_MAX } };
	int64_t value = 77;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (number_bytes(bad[i], 0, INT64_MAX, &value) || value != 77)
			fail_msg("\"%s\" was taken", bad[i]);
	assert_false(number_bytes("1K", 1025, INT64_MAX, &value));
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		char text[24];
		assert_true(number_bytes(good[i].text, 0, INT64_MAX, &value));
		assert_int_equal(value, good[i].bytes);
		/* What is shown is read again as the same. */
		assert_true(
			number_bytes(number_bytes_text(value, text, sizeof text), 0, INT64_MAX, &value));
		assert_int_equal(value, good[i].bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_numbers),
		cmocka_unit_test(all_64_bits_as_printed),
		cmocka_unit_test(real_numbers),
		cmocka_unit_test(sizes),
	};
	return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
