/* SPDX-License-Identifier: Apache-2.0 */
/* installed: programs are found beside the one that runs and in the folders beside its own, however
 * it was started; else where they were configured to be. This program looks from several places. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/installed.h"
#include "tests/unit/files.h"

#define CONFIGURED "/nowhere"

/* What a copy of this program in moved/bin finds, started as `name` in the folder `cwd`. */
static const char *found(const char *name, const char *cwd)
{
	static char answer[PATH_MAX];
	char command[1000];
	snprintf(command, sizeof command, "cd '%s/%s' && PATH='%s/moved/bin' && exec -a %s finder",
		files_dir, cwd, files_dir, name);
	setenv("COMMAND", command, 1);
	FILE *child = popen("bash -c \"$COMMAND look\"", "r");
	assert_non_null(child);
	assert_non_null(fgets(answer, sizeof answer, child));
	assert_int_equal(pclose(child), 0);
	return answer;
}

static void make_program(const char *name)
{
	assert_int_equal(chmod(files_write(name, "#!/bin/true\n", 12), 0755), 0);
}

static int setup(void **state)
{
	static const char *const folders[] = { "moved", "moved/bin", "moved/libexec", "elsewhere" };
	char command[1000];
	if (files_setup(state) < 0)
		return -1;
	for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
		assert_int_equal(mkdir(files_path(folders[i]), 0755), 0);
	snprintf(command, sizeof command, "cp /proc/%d/exe '%s/moved/bin/finder'", getpid(), files_dir);
	return system(command);
}

static void in_none_of_the_folders_it_is_where_it_was_configured(void **state)
{
	assert_string_equal(found("finder", "elsewhere"), "-1 " CONFIGURED "/helper\n");
}

static void in_the_folder_beside_and_first_beside_the_program(void **state)
{
	char expected[PATH_MAX];
	make_program("moved/libexec/helper");
	snprintf(expected, sizeof expected, "0 %s/moved/bin/../libexec/helper\n", files_dir);
	assert_string_equal(found("finder", "elsewhere"), expected);
	make_program("moved/bin/helper");
	snprintf(expected, sizeof expected, "0 %s/moved/bin/helper\n", files_dir);
	assert_string_equal(found("finder", "elsewhere"), expected);
}

/* A program's name may be anything, and that of a file in a folder of somebody else's. */
static void never_by_a_name_that_is_no_path(void **state)
{
	char expected[PATH_MAX];
	make_program("elsewhere/finder");
	make_program("elsewhere/helper");
	snprintf(expected, sizeof expected, "0 %s/moved/bin/helper\n", files_dir);
	assert_string_equal(found("finder", "elsewhere"), expected);
	assert_string_equal(found("./finder", "elsewhere"), expected);
}

static int look(void)
{
	char path[PATH_MAX];
	int rc = installed_program("libexec", CONFIGURED, "helper", path, sizeof path);
	printf("%d %s\n", rc, path);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_none_of_the_folders_it_is_where_it_was_configured),
		cmocka_unit_test(in_the_folder_beside_and_first_beside_the_program),
		cmocka_unit_test(never_by_a_name_that_is_no_path),
	};
	if (argc > 1)
		return look();
	return cmocka_run_group_tests(tests, setup, files_teardown);
}
