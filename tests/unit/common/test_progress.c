/* SPDX-License-Identifier: Apache-2.0 */
/* progress: the text of the bar and of sizes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/progress.h"

static void bytes_are_rounded_to_their_unit(void **state)
{
	static const struct {
		double bytes;
		const char *text;
	} cases[] = { { 0, "0 B" }, { 999, "999 B" }, { 1000, "1.0 kB" }, { 1949, "1.9 kB" },
		{ 99949, "99.9 kB" }, { 99951, "100 kB" }, { 999499, "999 kB" }, { 999501, "1.0 MB" },
		{ 4294967296.0, "4.3 GB" }, { 1e15, "1.0 PB" }, { 5e18, "5000 PB" } };
	char out[16];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_string_equal(progress_bytes(cases[i].bytes, out), cases[i].text);
}

static void times_are_read_at_a_glance(void **state)
{
	static const struct {
		double seconds;
		const char *text;
	} cases[] = { { -5, "0 s" }, { 59.9, "59 s" }, { 60, "1 min 00 s" }, { 3599, "59 min 59 s" },
		{ 3600, "1 h 00 min" }, { 86399, "23 h 59 min" }, { 86400 * 3 + 7200, "3 d 2 h" },
		{ NAN, "?" }, { INFINITY, "11574074 d 1 h" } };
	char out[PROGRESS_TIME_SIZE];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_string_equal(progress_time(cases[i].seconds, out), cases[i].text);
}

static void the_bar_shows_part_rate_and_time(void **state)
{
	char out[160];
	struct progress p = { .what = "verify", .total = 4000000000, .done = 1000000000 };
	assert_string_equal(progress_text(&p, 2, out, sizeof out),
		"verify [#######.......................]  25 % of 4.0 GB, 500 MB/s, 6 s left");
	p.done = 0;
	assert_string_equal(progress_text(&p, 0, out, sizeof out),
		"verify [..............................]   0 % of 4.0 GB");
	p.done = 5000000000;
	assert_non_null(strstr(progress_text(&p, 1, out, sizeof out), "100 %"));
	p.total = 0;
	assert_string_equal(progress_text(&p, 2, out, sizeof out), "verify 5.0 GB, 2.5 GB/s");
	p.unit = "tokens";
	assert_string_equal(progress_text(&p, 1e8, out, sizeof out),
		"verify 5.0 G tokens, 50 tokens/s");
}

/* Standard error of the tests is no terminal. */
static void nothing_is_drawn_elsewhere(void **state)
{
	struct progress p;
	progress_begin(&p, "x", 10, true);
	assert_false(p.visible);
	progress_add(&p, 4);
	progress_add(&p, 5);
	assert_int_equal(p.done, 9);
	progress_end(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_rounded_to_their_unit),
		cmocka_unit_test(times_are_read_at_a_glance),
		cmocka_unit_test(the_bar_shows_part_rate_and_time),
		cmocka_unit_test(nothing_is_drawn_elsewhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
