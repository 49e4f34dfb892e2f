/* SPDX-License-Identifier: Apache-2.0 */
/* The step that gives a requeued job's training another step ID: when it is due, and what its srun
 * gets, which a shell script plays here. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/io.h"
#include "plugin/skip_step.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"

/* Looks a variable up in a table that ends with NULL. */
static const char *from_table(const char *name, void *arg)
{
	for (const char *const *entry = arg; *entry; entry += 2)
		if (strcmp(entry[0], name) == 0)
			return entry[1];
	return NULL;
}

static bool is_due(const char *const *table)
{
	return skip_step_is_due(from_table, (void *)table);
}

static void every_second_attempt_begins_with_it(void **state)
{
	const char *table[] = { "SLURM_JOB_ID", "7", "SLURM_RESTART_COUNT", "1", NULL, "2", NULL };
	static const char *const due[] = { "1", "3", "2147483647" };
	static const char *const not_due[] = { "0", "2", "-1", "", "many", "1 ", "2147483649" };
	for (size_t i = 0; i < sizeof due / sizeof due[0]; i++) {
		table[3] = due[i];
		assert_true(is_due(table));
	}
	for (size_t i = 0; i < sizeof not_due / sizeof not_due[0]; i++) {
		table[3] = not_due[i];
		assert_false(is_due(table));
	}
	table[3] = "1";
	/* Inside a step, in a job of several components, in a step that muster-run begins anew. */
	table[4] = "SLURM_STEP_NUM_TASKS";
	assert_false(is_due(table));
	table[4] = "SLURM_HET_SIZE";
	assert_false(is_due(table));
	table[4] = IDENT_RESTART;
	assert_false(is_due(table));
	table[5] = "0";
	assert_true(is_due(table));
	assert_false(is_due((const char *[]) { "SLURM_RESTART_COUNT", "1", NULL }));
	assert_false(is_due((const char *[]) { "SLURM_JOB_ID", "7", NULL }));
}

/* Writes a script that plays srun. */
static const char *srun(const char *lines)
{
	char text[500];
	int size = snprintf(text, sizeof text, "#!/bin/sh\n%s\n", lines);
	const char *path = files_write("srun", text, (size_t)size);
	assert_int_equal(chmod(path, 0755), 0);
	return path;
}

static char *const environment[] = { "PATH=/usr/bin:/bin", "SLURM_CONF=/c/slurm.conf",
	"SLURM_JOB_ID=7", "SLURM_NTASKS=8", "SRUN_CPUS_PER_TASK=2", "SLURM_SPANK_X=1", "MINE=2",
	"SLURM_MPI_TYPE=pmix", NULL };

static void it_asks_for_one_task_and_nothing_of_the_script(void **state)
{
	struct err err;
	char lines[400];
	AUTO_FREE char *text = NULL;
	size_t size;
	const char *said = files_path("said");
	snprintf(lines, sizeof lines, "{ env | sort; printf '%%s\\n' \"$@\"; } >'%s'", said);
	assert_int_equal(skip_step_make(srun(lines), environment, HANG_SECONDS, &err), 0);
	assert_int_equal(io_read_file(AT_FDCWD, said, 1 << 16, &text, &size, &err), 0);
	assert_non_null(strstr(text, "MINE=2\n"));
	assert_non_null(strstr(text, "SLURM_CONF=/c/slurm.conf\nSLURM_JOB_ID=7\n"));
	assert_null(strstr(text, "NTASKS"));
	assert_null(strstr(text, "SRUN_"));
	assert_null(strstr(text, "SPANK"));
	assert_null(strstr(text, "pmix"));
	assert_non_null(strstr(text, "--no-muster\n"));
	assert_non_null(strstr(text, "--ntasks=1\n"));
	assert_non_null(strstr(text, "--overlap\n"));
	assert_string_equal(text + size - strlen("/bin/true\n"), "/bin/true\n");
}

static void what_srun_says_is_why_it_was_not_made(void **state)
{
	struct err err;
	assert_int_equal(skip_step_make(srun("echo 'srun: error: no such job' >&2; echo more"),
						 environment, HANG_SECONDS, &err),
		-1);
	assert_string_equal(err.text, "srun: error: no such job");
	assert_int_equal(skip_step_make("/no/srun", environment, HANG_SECONDS, &err), -1);
	assert_non_null(strstr(err.text, "/no/srun"));
}

static void an_srun_that_hangs_is_not_waited_for(void **state)
{
	struct err err;
	assert_int_equal(skip_step_make(srun("trap '' ALRM; exec sleep 1000"), environment, 0.3, &err),
		-1);
	assert_non_null(strstr(err.text, "it took more than 0.3 s"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_second_attempt_begins_with_it),
		cmocka_unit_test(it_asks_for_one_task_and_nothing_of_the_script),
		cmocka_unit_test(what_srun_says_is_why_it_was_not_made),
		cmocka_unit_test(an_srun_that_hangs_is_not_waited_for),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
