/* SPDX-License-Identifier: Apache-2.0 */
/* one_line: what it makes of any bytes is one line of UTF-8, which tells what the bytes were. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/generate/one_line.h"

static void each_kind_has_its_form(void **state)
{
	static const struct {
		const char *bytes;
		size_t size;
		const char *line;
	} cases[] = {
		{ "", 0, "" },
		{ "a b~", 4, "a b~" },
		{ "\n\t\r\\", 4, "\\n\\t\\r\\\\" },
		{ "a\0b\x1b\x7f", 5, "a\\x00b\\x1b\\x7f" },
		{ "é€😀", 9, "é€😀" },
		{ "\xc2\x85\xc2\xa0", 4, "\\xc2\\x85\xc2\xa0" },
		{ "\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa", 9, "\\xe2\\x80\\xa8\\xe2\\x80\\xa9\xe2\x80\xaa" },
		/* a character that is cut, and one that begins in the middle */
		{ "x\xe2\x82", 3, "x\\xe2\\x82" },
		{ "\x82z", 2, "\\x82z" },
		/* overlong, a surrogate, beyond Unicode */
		{ "\xc0\xaf", 2, "\\xc0\\xaf" },
		{ "\xe0\x9f\xbf", 3, "\\xe0\\x9f\\xbf" },
		{ "\xed\xa0\x80", 3, "\\xed\\xa0\\x80" },
		{ "\xf4\x90\x80\x80", 4, "\\xf4\\x90\\x80\\x80" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *line = one_line(cases[i].bytes, cases[i].size);
		assert_string_equal(line, cases[i].line);
		free(line);
	}
}

/* The bytes that a line tells. */
static size_t bytes_of(const char *line, char *out)
{
	static const char letters[] = "ntr\\", plain[] = "\n\t\r\\";
	size_t size = 0;
	while (*line) {
		if (*line != '\\') {
			out[size++] = *line++;
		} else if (line[1] == 'x') {
			const char digits[3] = { line[2], line[3], '\0' };
			out[size++] = (char)strtoul(digits, NULL, 16);
			line += 4;
		} else {
			const char *letter = strchr(letters, line[1]);
			assert_non_null(letter);
			out[size++] = plain[letter - letters];
			line += 2;
		}
	}
	return size;
}

/* Three bytes of all that decide about a character. */
static void any_bytes_are_one_line_and_come_back(void **state)
{
	static const unsigned char some[] = { 0, '\n', 'a', '\\', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
		0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff };
	const size_t count = sizeof some;
	for (size_t i = 0; i < count * count * count; i++) {
		const char bytes[] = { (char)some[i % count], (char)some[i / count % count],
			(char)some[i / count / count] };
		char back[3 * sizeof bytes];
		char *line = one_line(bytes, sizeof bytes);
		json_t *text = json_string(line);
		assert_non_null(text); /* jansson's own look at UTF-8 */
		json_decref(text);
		for (const char *p = line; *p; p++)
			assert_false((unsigned char)*p < 0x20 || *p == 0x7f);
		assert_int_equal(bytes_of(line, back), sizeof bytes);
		assert_memory_equal(back, bytes, sizeof bytes);
		free(line);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_has_its_form),
		cmocka_unit_test(any_bytes_are_one_line_and_come_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
