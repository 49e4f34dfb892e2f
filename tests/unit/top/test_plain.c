/* SPDX-License-Identifier: Apache-2.0 */
/* plain: whatever bytes come in, printable characters come out, no more than fit. */
#include "config.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <cmocka.h>

#include "top/plain.h"

/* The columns of a text, all of whose characters are printable. */
static int columns_of(const char *text)
{
	wchar_t wide[600];
	const size_t length = mbstowcs(wide, text, 600);
	assert_true(length < 600);
	const int columns = wcswidth(wide, length);
	assert_true(columns >= 0);
	return columns;
}

static void any_bytes_become_printable(void **state)
{
	unsigned seed = 1;
	(void)state;
	for (int round = 0; round < 200000; round++) {
		char text[60], out[60], again[60];
		const int length = rand_r(&seed) % 59, columns = rand_r(&seed) % 70;
		const size_t size = 1 + (size_t)rand_r(&seed) % sizeof out;
		for (int i = 0; i < length; i++)
			text[i] = (char)(1 + rand_r(&seed) % 255);
		text[length] = '\0';
		const int taken = plain_fit(text, columns, out, size);
		assert_true(strlen(out) < size);
		assert_int_equal(taken, columns_of(out));
		assert_true(taken <= columns);
		/* It has nothing left to replace. */
		assert_int_equal(plain_fit(out, columns, again, sizeof again), taken);
		assert_string_equal(out, again);
	}
}

static void fit(const char *text, int columns, const char *expected)
{
	char out[100];
	plain_fit(text, columns, out, sizeof out);
	assert_string_equal(out, expected);
}

static void what_is_printable_stays(void **state)
{
	(void)state;
	assert_true(plain_is_unicode());
	fit("node 1", 10, "node 1");
	fit("node 1", 4, "node");
	fit("r\xc3\xa9seau", 3, "r\xc3\xa9s");
	fit("\xe7\xaf\x80\xe7\x82\xb9", 3, "\xe7\xaf\x80"); /* two columns each */
	fit("a\033[2Jb", 10, "a?[2Jb");
	fit("a\nb\tc\177", 10, "a?b?c?");
	fit("a\xc2\x9b"
		"31m",
		10, "a?31m"); /* CSI as one character */
	fit("a\xff\xc3", 10, "a??");
}

static void other_locales_have_ascii(void **state)
{
	(void)state;
	assert_non_null(setlocale(LC_CTYPE, "C"));
	assert_false(plain_is_unicode());
	fit("r\xc3\xa9seau\033", 10, "r??seau?");
	any_bytes_become_printable(state);
	assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(any_bytes_become_printable),
		cmocka_unit_test(what_is_printable_stays), cmocka_unit_test(other_locales_have_ascii) };
	if (!setlocale(LC_CTYPE, "C.UTF-8"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
