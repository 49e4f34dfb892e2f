/* SPDX-License-Identifier: Apache-2.0 */
/* file_list: names and patterns become files in the order of their names, and a message says which
 * can't. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "tests/unit/files.h"
#include "trainer/data/file_list.h"

/* `text` with each % as the folder's path. */
static const char *expand(const char *text)
{
	static char out[4000];
	size_t used = 0;
	for (; *text; text++)
		used += (size_t)snprintf(out + used, sizeof out - used, *text == '%' ? "%s" : "%.1s",
			*text == '%' ? files_dir : text);
	out[used] = '\0';
	return out;
}

static void names(const char *text, const char *first, const char *second, const char *third)
{
	const char *want[] = { first, second, third };
	struct file_list list;
	struct err err;
	size_t count = 0;
	if (file_list_make(&list, expand(text), &err) < 0)
		fail_msg("%s: %s", text, err.text);
	for (; count < 3 && want[count]; count++) {
		assert_true(count < list.count);
		assert_string_equal(strrchr(list.paths[count], '/') + 1, want[count]);
	}
	assert_int_equal(list.count, count);
	file_list_clear(&list);
	assert_null(list.paths);
}

static void refuses(const char *text, enum exit_status status, const char *why)
{
	struct file_list list;
	struct err err;
	assert_int_equal(file_list_make(&list, expand(text), &err), -1);
	assert_int_equal(err.status, status);
	assert_non_null(strstr(err.text, why));
	assert_null(list.paths);
}

static int make_files(void **state)
{
	static const char *const all[] = { "a_10.bin", "a_9.bin", "B_1.bin", "a,b.bin", "star*.bin",
		"other.txt" };
	if (files_setup(state) < 0)
		return -1;
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		files_write(all[i], "x", 1);
	return mkdir(files_path("empty"), 0700);
}

static void one_name_is_that_file(void **state)
{
	names("%/other.txt", "other.txt", NULL, NULL);
	names("%/missing.bin", "missing.bin", NULL, NULL); /* who opens it says so */
	names("%/a,b.bin", "a,b.bin", NULL, NULL);
	names("%/star*.bin", "star*.bin", NULL, NULL);
}

/* By bytes: upper case comes first, and "10" before "9", in any locale. */
static void several_are_in_the_order_of_their_names(void **state)
{
	names("%/[aB]_*.bin", "B_1.bin", "a_10.bin", "a_9.bin");
	names("%/a_9.bin,%/B_1.bin,%/a_10.bin", "B_1.bin", "a_10.bin", "a_9.bin");
	names("%/a_?.bin,%/a_1?.bin", "a_10.bin", "a_9.bin", NULL);
	names("%/star*.bin,%/other.txt", "other.txt", "star*.bin", NULL);
}

static void what_can_not_be_meant_is_refused(void **state)
{
	refuses("%/none_*.bin", EXIT_DATA, "none_*.bin: no file has a name like that");
	refuses("%/empty/*", EXIT_DATA, "no file has a name like that");
	refuses("%/a_9.bin,%/a_*.bin", EXIT_DATA, "a_9.bin is named twice");
	refuses("%/a_9.bin,", EXIT_USAGE, "leave out one comma");
	refuses(",%/a_9.bin", EXIT_USAGE, "leave out one comma");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_name_is_that_file),
		cmocka_unit_test(several_are_in_the_order_of_their_names),
		cmocka_unit_test(what_can_not_be_meant_is_refused),
	};
	return cmocka_run_group_tests(tests, make_files, files_teardown);
}
