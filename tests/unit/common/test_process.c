/* SPDX-License-Identifier: Apache-2.0 */
/* A process is told from its corpse and from a later one of the same pid. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/process.h"
#include "tests/unit/hang.h"

static pid_t sleeper(void)
{
	pid_t pid = fork();
	if (pid == 0)
		for (;;)
			pause();
	return pid;
}

static void a_process_runs_until_it_has_ended(void **state)
{
	struct process process;
	pid_t pid = sleeper();
	assert_true(process_find(pid, &process));
	assert_int_equal(process_parent(pid), getpid());
	assert_true(process_runs(&process));
	double begun = clock_now();
	assert_false(process_wait(&process, 0.1));
	assert_true(clock_now() - begun >= 0.1);
	process_kill(&process);
	assert_true(process_wait(&process, HANG_SECONDS));
	/* Nobody has waited for it yet, and it has ended all the same. */
	assert_false(process_runs(&process));
	assert_false(process_find(pid, &process));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_false(process_find(pid, &process));
	assert_int_equal(process_parent(pid), 0);
}

static void another_one_of_its_pid_is_left_alone(void **state)
{
	struct process process;
	pid_t pid = sleeper();
	assert_true(process_find(pid, &process));
	process.start--;
	assert_false(process_runs(&process));
	process_kill(&process);
	assert_false(process_wait(&(struct process) { pid, process.start + 1 }, 0.1));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void nobody_is_never_killed(void **state)
{
	static const pid_t pids[] = { 0, -1, 1 };
	for (size_t i = 0; i < 3; i++) {
		struct process process = { .pid = pids[i] };
		process_find(pids[i], &process);
		assert_false(process_runs(&process));
		process_kill(&process);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_runs_until_it_has_ended),
		cmocka_unit_test(another_one_of_its_pid_is_left_alone),
		cmocka_unit_test(nobody_is_never_killed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
