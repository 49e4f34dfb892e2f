/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap_message: what is put is found; what comes from elsewhere never leads outside of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "launch/bootstrap_message.h"

static void what_is_put_is_found(void **state)
{
	struct put_list list = { 0 };
	char key[256], large[70000];
	size_t size;
	memset(key, 'k', 255);
	key[255] = '\0';
	memset(large, 'v', sizeof large);
	assert_null(put_list_find(list.bytes, list.size, "a", &size));
	assert_int_equal(put_list_add(&list, "a", "one", 3), 0);
	assert_int_equal(put_list_add(&list, "ab", NULL, 0), 0);
	assert_int_equal(put_list_add(&list, key, large, sizeof large), 0);
	assert_int_equal(put_list_add(&list, "b", "two\0", 4), 0);
	assert_memory_equal(put_list_find(list.bytes, list.size, "a", &size), "one", 3);
	assert_int_equal(size, 3);
	assert_non_null(put_list_find(list.bytes, list.size, "ab", &size));
	assert_int_equal(size, 0);
	assert_memory_equal(put_list_find(list.bytes, list.size, key, &size), large, sizeof large);
	assert_int_equal(size, sizeof large);
	assert_memory_equal(put_list_find(list.bytes, list.size, "b", &size), "two\0", 4);
	assert_int_equal(size, 4);
	assert_null(put_list_find(list.bytes, list.size, "abc", &size));
	struct put_entry entry;
	size_t at = 0, count = 0;
	for (; put_list_next(list.bytes, list.size, &at, &entry); count++)
		assert_memory_equal(entry.value,
			put_list_find(list.bytes, list.size,
				count == 0       ? "a"
					: count == 1 ? "ab"
					: count == 2 ? key
								 : "b",
				&size),
			entry.size);
	assert_int_equal(count, 4);
	assert_int_equal(at, list.size);
	free(list.bytes);
}

static void one_kept_value_keeps_the_list(void **state)
{
	struct put_list list = { 0 };
	assert_true(put_list_is_passing(NULL, 0));
	assert_int_equal(put_list_add(&list, "~a", "one", 3), 0);
	assert_int_equal(put_list_add(&list, "~b", "", 0), 0);
	assert_true(put_list_is_passing(list.bytes, list.size));
	assert_int_equal(put_list_add(&list, "b~", "", 0), 0);
	assert_false(put_list_is_passing(list.bytes, list.size));
	assert_int_equal(put_list_add(&list, "~c", "", 0), 0);
	assert_false(put_list_is_passing(list.bytes, list.size));
	free(list.bytes);
}

/* Each in memory of exactly its size, which valgrind and the sanitizers watch. */
static void lists_that_are_none(void **state)
{
	struct put_list list = { 0 };
	size_t size;
	assert_int_equal(put_list_add(&list, "first", "value", 5), 0);
	assert_int_equal(put_list_add(&list, "last", "end", 3), 0);
	for (size_t left = 0; left < list.size; left++) {
		unsigned char *cut = malloc(left ? left : 1);
		memcpy(cut, list.bytes, left);
		assert_null(put_list_find(cut, left, "last", &size));
		assert_true(!put_list_is_passing(cut, left) || left == 0);
		free(cut);
	}
	for (size_t at = 0; at < list.size; at++)
		for (int bit = 0; bit < 8; bit++) {
			unsigned char *other = malloc(list.size);
			memcpy(other, list.bytes, list.size);
			other[at] ^= (unsigned char)(1 << bit);
			const unsigned char *found = put_list_find(other, list.size, "last", &size);
			assert_true(!found || found + size <= other + list.size);
			put_list_is_passing(other, list.size);
			free(other);
		}
	free(list.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_is_found),
		cmocka_unit_test(one_kept_value_keeps_the_list),
		cmocka_unit_test(lists_that_are_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
