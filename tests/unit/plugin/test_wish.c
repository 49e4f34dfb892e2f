/* SPDX-License-Identifier: Apache-2.0 */
/* A requeue that is still to be asked for: it comes back as it was kept, and what may bring the job
 * back is not replaced. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/job_folder.h"
#include "plugin/wish.h"
#include "tests/unit/files.h"

static const char *run(void)
{
	return files_path("w"); /* short: a socket's path has 107 bytes */
}

/* The arguments of job `job`, divided by spaces; "" where there are none. */
static const char *kept(uint32_t job)
{
	static char text[WISH_SIZE];
	struct wish wish;
	text[0] = '\0';
	if (wish_read(run(), job, WISH_IN_VAIN, &wish))
		for (char **argument = wish.argv; *argument; argument++)
			sprintf(text + strlen(text), "%s%s", text[0] ? " " : "", *argument);
	return text;
}

static void it_comes_back_until_it_is_dropped(void **state)
{
	char *argv[] = { "--step=0", "--when=1.5", "--breaker=10", "7", "0", NULL };
	assert_string_equal(kept(7), "");
	wish_write(run(), 7, WISH_IN_VAIN, argv);
	assert_string_equal(kept(7), "--step=0 --when=1.5 --breaker=10 7 0");
	assert_string_equal(kept(8), "");
	wish_drop(run(), 7, WISH_ASKED);
	assert_string_equal(kept(7), "--step=0 --when=1.5 --breaker=10 7 0");
	wish_drop(run(), 7, WISH_IN_VAIN);
	assert_string_equal(kept(7), "");
	wish_write(run(), 7, WISH_IN_VAIN, argv);
	assert_int_equal(job_folder_remove(run(), 7, NULL), 0);
	assert_string_equal(kept(7), "");
}

static void what_ends_for_good_takes_nobodys_place(void **state)
{
	char *final[] = { "--final=rank 1 exited", "9", "0", NULL },
		 *back[] = { "--breaker=10", "9", "0", NULL };
	char *other[] = { "--step=1", "9", "0", NULL };
	wish_write(run(), 9, WISH_IN_VAIN, final);
	assert_string_equal(kept(9), "--final=rank 1 exited 9 0");
	wish_write(run(), 9, WISH_IN_VAIN, back);
	assert_string_equal(kept(9), "--breaker=10 9 0");
	wish_write(run(), 9, WISH_IN_VAIN, final);
	wish_write(run(), 9, WISH_IN_VAIN, other);
	assert_string_equal(kept(9), "--breaker=10 9 0");
}

/* A user names the path that shows progress. */
static void an_argument_stays_one(void **state)
{
	char longest[WISH_SIZE + 10], *argv[] = { "--progress=/a\n--final=b", longest, "5", "0", NULL };
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	wish_write(run(), 5, WISH_IN_VAIN, argv);
	assert_string_equal(kept(5), "5 0");
}

static void the_host_of_the_script_is_known(void **state)
{
	assert_false(wish_is_batch_host(run(), 6));
	wish_mark_batch_host(run(), 6);
	assert_true(wish_is_batch_host(run(), 6));
	assert_false(wish_is_batch_host(run(), 7));
	assert_string_equal(kept(6), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_comes_back_until_it_is_dropped),
		cmocka_unit_test(what_ends_for_good_takes_nobodys_place),
		cmocka_unit_test(an_argument_stays_one),
		cmocka_unit_test(the_host_of_the_script_is_known),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
