/* SPDX-License-Identifier: Apache-2.0 */
/* requeue_program, job_query, requeue_ask: what muster-requeue answers is taken, and where it is
 * missing or can't be loaded one line has the remedy. Compiled with LIBEXECDIR=libexec, below the
 * folder that this program works in. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "launch/job_query.h"
#include "launch/requeue_ask.h"
#include "tests/unit/files.h"

#define HELPER "libexec/muster-requeue"

static char said[4000];

static void keep(void *arg, enum log_level level, const char *line)
{
	size_t length = strlen(said);
	snprintf(said + length, sizeof said - length, "%s\n", line);
}

/* Installs a muster-requeue that runs these lines of a shell; NULL: there is none. */
static void install(const char *lines)
{
	said[0] = '\0';
	log_set_writer(keep, NULL);
	remove(HELPER);
	if (!lines)
		return;
	FILE *file = fopen(HELPER, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n%s\n", lines);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(HELPER, 0700), 0);
}

static int setup(void **state)
{
	unsetenv("MUSTER_ATTEMPT");
	unsetenv("SLURM_JOB_END_TIME");
	return files_setup(state) < 0 || chdir(files_dir) < 0 || mkdir("libexec", 0700) < 0;
}

static const struct ident ident = { .job = 7, .attempt = 2 };

static void an_answer_is_taken(void **state)
{
	struct err err;
	install("case \"$1 $3 $4\" in '--runs 7 0') echo yes;; '--runs 8 0') echo no;;\n"
			"'--times 7 0') echo 1600000000 1650000000 1700000000;;\n"
			"'--times 6 0') echo 1600000000 soon;; *) exit 1;; esac");
	assert_int_equal(job_is_running(7, &err), 1);
	assert_int_equal(job_is_running(8, &err), 0);
	assert_int_equal(job_is_running(9, &err), -1);
	assert_int_equal(err.status, EXIT_FAULT);
	assert_non_null(strstr(err.text, "couldn't ask Slurm about job 9"));
	const struct job_times times = job_times(7);
	assert_true(times.submitted == 1600000000.0);
	assert_true(times.began == 1650000000.0);
	assert_true(times.ends == 1700000000.0);
	assert_true(job_times(6).submitted == 0);
	assert_true(job_times(8).ends == 0);
	/* Slurm tells it in the environment, too. */
	setenv("SLURM_JOB_END_TIME", "1700000001", 1);
	assert_true(job_times(8).ends == 1700000001.0);
	unsetenv("SLURM_JOB_END_TIME");
	assert_true(job_times(0).ends == 0);
	assert_string_equal(said, "");
}

static void a_requeue_is_asked_for(void **state)
{
	install("echo \"$*\" >asked");
	requeue_ask(&ident, EXIT_LOST);
	assert_string_equal(said, "");
	FILE *file = fopen("asked", "r");
	char line[100] = "";
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof line, file));
	assert_int_equal(fclose(file), 0);
	assert_string_equal(line, "--deadline 10 7 2\n");
	install("exit 1");
	requeue_ask(&ident, EXIT_LOST);
	assert_non_null(strstr(said, "did not put the job back"));
}

/* Both ways to ask say why in one line, with the remedy. */
static void check_trouble(const char *why, const char *remedy)
{
	struct err err;
	assert_int_equal(job_is_running(7, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, why));
	assert_non_null(strstr(err.text, remedy));
	assert_non_null(strstr(err.text, HELPER));
	said[0] = '\0';
	requeue_ask(&ident, EXIT_LOST);
	assert_non_null(strstr(said, err.text));
	assert_int_equal(strcspn(said, "\n"), strlen(said) - 1);
	said[0] = '\0';
	assert_true(job_times(7).ends == 0);
	assert_non_null(strstr(said, err.text));
}

static void a_helper_that_is_missing_or_of_another_release_is_named(void **state)
{
	install(NULL);
	check_trouble("couldn't find", "make install");
	/* As the dynamic loader does. */
	install("echo 'libslurm.so.99: cannot open shared object file' >&2; exit 127");
	check_trouble("another release of Slurm", "build Muster for this one");
	/* Nobody asks outside Slurm, or where the plugin does. */
	said[0] = '\0';
	requeue_ask(&(struct ident) { 0 }, EXIT_LOST);
	setenv("MUSTER_ATTEMPT", "0", 1);
	requeue_ask(&ident, EXIT_LOST);
	unsetenv("MUSTER_ATTEMPT");
	/* Nor for what no requeue mends, nor for what muster-run mends. */
	requeue_ask(&ident, EXIT_OK);
	requeue_ask(&ident, EXIT_FAULT);
	setenv(IDENT_RESTARTS_LEFT, "1", 1);
	requeue_ask(&ident, EXIT_LOST);
	assert_string_equal(said, "");
	requeue_ask(&ident, EXIT_REQUEUE);
	assert_string_not_equal(said, "");
	setenv(IDENT_RESTARTS_LEFT, "0", 1);
	said[0] = '\0';
	requeue_ask(&ident, EXIT_LOST);
	assert_string_not_equal(said, "");
	unsetenv(IDENT_RESTARTS_LEFT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_is_taken),
		cmocka_unit_test(a_requeue_is_asked_for),
		cmocka_unit_test(a_helper_that_is_missing_or_of_another_release_is_named),
	};
	return cmocka_run_group_tests(tests, setup, files_teardown);
}
