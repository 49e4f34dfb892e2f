/* SPDX-License-Identifier: Apache-2.0 */
/* record, where memory is short: whichever allocation fails, what is parsed, written or built is
 * whole, or is not there. jansson by itself loses a part of it. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/record.h"

/* Texts and names that outgrow jansson's first buffer, and numbers between them. */
static const char text[] =
	"{\"format\":\"muster-checkpoint-of-a-long-name\",\"time\":1796000785.25,"
	"\"files\":[{\"name of a file that is long enough\":[1,2,3]},"
	"{\"another name of a file, longer than the first one\":[4,5,6]},"
	"{\"and one more, so that the text has more than 256 bytes\":[7,8,9]}]}";

static long left = -1; /* allocations until one fails; -1: none does */
static bool failed;    /* one has */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define CAN_FAIL 0 /* a sanitizer has a malloc of its own */
#else
#define CAN_FAIL 1
void *__libc_malloc(size_t size);

/* jansson's, too. */
__attribute__((visibility("default"))) void *malloc(size_t size)
{
	if (left >= 0 && left-- == 0) {
		failed = true;
		errno = ENOMEM;
		return NULL;
	}
	return __libc_malloc(size);
}
#endif

/* Calls `try` with each of its allocations failing in turn, until none does; it returns whether it
 * had a result, which must be right. */
static void each_fails(bool (*try)(void))
{
	long n = 0;
	if (!CAN_FAIL)
		skip();
	do {
		left = n++;
		failed = false;
		bool had = try();
		left = -1;
		assert_true(had || failed);
	} while (failed);
	assert_true(n > 4);
}

static bool parse(void)
{
	struct err err = { 0 };
	json_t *value = record_parse(text, strlen(text), JSON_REJECT_DUPLICATES, "it", &err);
	left = -1;
	if (!value) {
		assert_int_equal(err.status, EXIT_LOST);
		return false;
	}
	char *again = json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(17));
	assert_string_equal(again, text);
	free(again);
	json_decref(value);
	return true;
}

static void a_text_is_read_whole_or_not_at_all(void **state)
{
	each_fails(parse);
}

static json_t *whole;

static bool dump(void)
{
	char *written = record_dump(whole, JSON_COMPACT | JSON_REAL_PRECISION(17));
	if (!written)
		return false;
	assert_string_equal(written, text);
	free(written);
	return true;
}

static void a_value_is_written_whole_or_not_at_all(void **state)
{
	whole = json_loads(text, 0, NULL);
	each_fails(dump);
	json_decref(whole);
	assert_null(record_dump(NULL, 0));
}

static bool build(void)
{
	static const int64_t values[] = { 3, -1, INT64_MAX };
	json_t *array = json_array(), *object = json_object();
	for (int i = 0; i < 20; i++)
		array = record_append(array, json_integer(i));
	object = record_set(object, "list", array);
	object = record_set(object, "shape", record_integers(values, 3));
	object = record_update(object, json_pack("{s:i, s:s}", "more", 1, "text", "it"));
	if (!object)
		return false;
	assert_int_equal(json_array_size(json_object_get(object, "list")), 20);
	assert_int_equal(json_array_size(json_object_get(object, "shape")), 3);
	assert_int_equal(json_object_size(object), 4);
	json_decref(object);
	return true;
}

static void what_is_built_is_whole_or_nothing(void **state)
{
	each_fails(build);
	assert_null(record_append(json_array(), json_string("\xff")));
	assert_null(record_set(json_object(), "name", NULL));
	assert_null(record_set(NULL, "name", json_null()));
	assert_null(record_update(json_object(), NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_is_read_whole_or_not_at_all),
		cmocka_unit_test(a_value_is_written_whole_or_not_at_all),
		cmocka_unit_test(what_is_built_is_whole_or_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
