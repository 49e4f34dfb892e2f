/* SPDX-License-Identifier: Apache-2.0 */
/* spelling: tokens are bytes where no tokenizer is named and the vocabulary is that of bytes. With
 * a tokenizer tests/generate.bats looks at it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "trainer/generate/spelling.h"

static void bytes_are_tokens_and_come_back(void **state)
{
	struct err err;
	struct token_list list = { 0 };
	char all[SPELLING_BYTES];
	size_t size;
	struct spelling *spelling = spelling_open(NULL, "/nowhere", SPELLING_BYTES, "", &err);
	assert_non_null(spelling);
	for (int i = 0; i < SPELLING_BYTES; i++)
		all[i] = (char)i;
	assert_int_equal(spelling_encode(spelling, all, sizeof all, &list, &err), 0);
	assert_int_equal(list.count, sizeof all);
	for (int i = 0; i < SPELLING_BYTES; i++) {
		const char *bytes = spelling_bytes(spelling, list.ids[i], &size);
		assert_int_equal(list.ids[i], i);
		assert_int_equal(size, 1);
		assert_int_equal(*bytes, all[i]);
	}
	assert_null(spelling_bytes(spelling, SPELLING_BYTES, &size));
	assert_null(spelling_bytes(spelling, -1, &size));
	free(list.ids);
	spelling_close(spelling);
	spelling_close(NULL);
}

static void what_fits_no_model_is_refused_with_the_remedy(void **state)
{
	struct err err = { 0 };
	assert_null(spelling_open(NULL, NULL, 64, ", or something else", &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_string_equal(err.text,
		"the model's 64 tokens are no bytes: give the --tokenizer that made them, or something "
		"else");
	/* One that is named is not passed over. */
	assert_null(spelling_open("/nowhere/tokenizer.json", NULL, SPELLING_BYTES, "", &err));
	assert_non_null(strstr(err.text, "/nowhere/tokenizer.json"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_tokens_and_come_back),
		cmocka_unit_test(what_fits_no_model_is_refused_with_the_remedy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
