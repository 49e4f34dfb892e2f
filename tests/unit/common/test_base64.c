/* SPDX-License-Identifier: Apache-2.0 */
/* Base64: the vectors of RFC 4648, all lengths back again, and no other text for the same bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base64.h"

/* Section 10 of the RFC. */
static const char *const vectors[][2] = {
	{ "", "" },
	{ "f", "Zg==" },
	{ "fo", "Zm8=" },
	{ "foo", "Zm9v" },
	{ "foob", "Zm9vYg==" },
	{ "fooba", "Zm9vYmE=" },
	{ "foobar", "Zm9vYmFy" },
};

static void the_standards_own_examples_hold(void **state)
{
	char text[20], bytes[20];
	for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
		size_t size = strlen(vectors[i][0]);
		base64_encode(vectors[i][0], size, text);
		assert_string_equal(text, vectors[i][1]);
		assert_int_equal(strlen(text), BASE64_LENGTH(size));
		assert_int_equal(base64_decode(text, strlen(text), bytes, sizeof bytes), size);
		assert_memory_equal(bytes, vectors[i][0], size);
	}
}

static void every_length_and_every_byte_comes_back(void **state)
{
	unsigned char bytes[600], back[600];
	char text[BASE64_LENGTH(600) + 1];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (unsigned char)(i * 167 + i / 256);
	for (size_t size = 0; size <= sizeof bytes; size++) {
		base64_encode(bytes, size, text);
		assert_int_equal(strspn(text,
							 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="),
			strlen(text));
		assert_int_equal(base64_decode(text, strlen(text), back, size), size);
		assert_memory_equal(back, bytes, size);
		if (size > 0)
			assert_int_equal(base64_decode(text, strlen(text), back, size - 1), -1);
	}
}

static void anything_else_is_refused(void **state)
{
	static const char *const others[] = { "Zg",
		"Zg=", "Zg===", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm=v", "Zm9v\n", "Zm 9",
		"Zm-_", "\xff\xff\xff\xff" };
	char bytes[20];
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		assert_int_equal(base64_decode(others[i], strlen(others[i]), bytes, sizeof bytes), -1);
	assert_int_equal(base64_decode("Zm\0v", 4, bytes, sizeof bytes), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_standards_own_examples_hold),
		cmocka_unit_test(every_length_and_every_byte_comes_back),
		cmocka_unit_test(anything_else_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
