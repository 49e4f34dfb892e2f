/* SPDX-License-Identifier: Apache-2.0 */
/* Running the helper: its output, its parent, its privileges, and the time that it gets. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/run_as_user.h"
#include "tests/unit/hang.h"

static char output[200];
static struct err err;

static int shell(const char *script, double seconds)
{
	gid_t groups[] = { 7, 8 };
	struct run_user user = { 65534, 65533, groups, 2 };
	char *argv[] = { "/bin/sh", "-c", (char *)script, NULL };
	char *env[] = { "COLOUR=red", NULL };
	memset(&err, 0, sizeof err);
	return run_as_user(&user, argv, env, seconds, output, sizeof output, &err);
}

static void output_comes_back(void **state)
{
	assert_int_equal(shell("echo out $COLOUR $HOME; echo err >&2; exit 3", 10), 0);
	assert_string_equal(output, "out red\nerr\n");
}

static void long_output_is_cut_not_blocked_on(void **state)
{
	assert_int_equal(shell("i=0; while [ $i -lt 20000 ]; do echo 1234567; i=$((i+1)); done", 20),
		0);
	assert_int_equal(strlen(output), sizeof output - 1);
}

static void one_that_takes_too_long_is_ended_and_not_waited_for(void **state)
{
	double start = clock_now();
	int pid;
	assert_int_equal(shell("echo $$; exec sleep 300", 0.3), -1);
	assert_true(clock_now() - start < 60);
	assert_non_null(strstr(err.text, "more than 0.3 s"));
	assert_int_equal(sscanf(output, "%d", &pid), 1);
	struct deadline deadline = deadline_in(HANG_SECONDS);
	while (kill(pid, 0) == 0)
		assert_true(deadline_sleep(deadline, 0.02));
}

static void one_that_its_user_has_stopped_is_ended_too(void **state)
{
	int pid;
	assert_int_equal(shell("echo $$; kill -STOP $$", 0.3), -1);
	assert_int_equal(sscanf(output, "%d", &pid), 1);
	struct deadline deadline = deadline_in(HANG_SECONDS);
	while (kill(pid, 0) == 0)
		assert_true(deadline_sleep(deadline, 0.02));
}

static void it_is_nobodys_child_and_stands_polite_signals(void **state)
{
	char *rest = output;
	assert_int_equal(shell("kill -TERM $$; kill -HUP $$; kill -INT $$; echo $$ $PPID", 10), 0);
	int pid = (int)strtol(output, &rest, 10), parent = (int)strtol(rest, NULL, 10);
	assert_true(pid > 1);
	assert_int_not_equal(parent, getpid());
}

static void no_descriptor_of_ours_is_left_open(void **state)
{
	assert_int_equal(shell("ls /proc/self/fd | tr '\\n' ' '", 10), 0);
	/* 3 is the folder that ls reads. */
	assert_string_equal(output, "0 1 2 3 ");
}

static void all_privileges_are_dropped(void **state)
{
	if (geteuid() != 0)
		skip();
	assert_int_equal(
		shell("grep -E '^(Uid|Gid|Groups|CapEff)' /proc/self/status | tr -s '\\t ' ' '", 10), 0);
	assert_string_equal(output,
		"Uid: 65534 65534 65534 65534\nGid: 65533 65533 65533 65533\nGroups: 7 8 \n"
		"CapEff: 0000000000000000\n");
}

static void one_that_is_missing_is_an_error(void **state)
{
	struct run_user user = { getuid(), getgid(), NULL, 0 };
	char *argv[] = { "/nonexistent/helper", NULL }, *env[] = { NULL };
	assert_int_equal(run_as_user(&user, argv, env, 5, output, sizeof output, &err), -1);
	assert_non_null(strstr(err.text, "/nonexistent/helper"));
}

static void one_that_stays_is_not_waited_for(void **state)
{
	struct run_user user = { getuid(), getgid(), NULL, 0 };
	char *argv[] = { "/bin/sleep", "300", NULL }, *env[] = { NULL };
	pid_t pid = 0;
	double start = clock_now();
	assert_int_equal(start_as_user(&user, argv, env, -1, 10, &pid, &err), 0);
	assert_true(clock_now() - start < 60);
	assert_true(pid > 1);
	assert_int_equal(getsid(pid), pid);
	assert_int_equal(kill(pid, SIGKILL), 0);
	argv[0] = "/nonexistent/service";
	assert_int_equal(start_as_user(&user, argv, env, -1, 5, &pid, &err), -1);
	assert_non_null(strstr(err.text, "/nonexistent/service"));
}

static void a_program_starts_though_the_streams_are_closed(void **state)
{
	/* As Slurm's prolog process, which has closed its standard input. */
	int saved = dup(0);
	close(0);
	assert_int_equal(shell("echo out; ls /proc/self/fd | tr '\\n' ' '", 10), 0);
	dup2(saved, 0);
	close(saved);
	assert_string_equal(output, "out\n0 1 2 3 ");
}

static void the_groups_of_a_user_are_those_of_the_database(void **state)
{
	gid_t *groups;
	size_t count;
	assert_int_equal(run_user_groups(getuid(), 4242, &groups, &count, &err), 0);
	assert_true(count >= 1);
	bool found = false;
	for (size_t i = 0; i < count; i++)
		found |= groups[i] == 4242;
	assert_true(found);
	free(groups);
	assert_int_equal(run_user_groups(3999999999u, 4242, &groups, &count, &err), -1);
	assert_non_null(strstr(err.text, "3999999999"));
	assert_int_equal(count, 1);
	assert_int_equal(groups[0], 4242);
	free(groups);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_comes_back),
		cmocka_unit_test(long_output_is_cut_not_blocked_on),
		cmocka_unit_test(one_that_takes_too_long_is_ended_and_not_waited_for),
		cmocka_unit_test(one_that_its_user_has_stopped_is_ended_too),
		cmocka_unit_test(it_is_nobodys_child_and_stands_polite_signals),
		cmocka_unit_test(no_descriptor_of_ours_is_left_open),
		cmocka_unit_test(all_privileges_are_dropped),
		cmocka_unit_test(one_that_is_missing_is_an_error),
		cmocka_unit_test(one_that_stays_is_not_waited_for),
		cmocka_unit_test(a_program_starts_though_the_streams_are_closed),
		cmocka_unit_test(the_groups_of_a_user_are_those_of_the_database),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
