/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes are slurmstepds that a job has left: this program plays slurmd's and theirs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/process.h"
#include "plugin/left_stepd.h"
#include "tests/unit/hang.h"

#define SELF "/proc/self/exe"

/* Starts a program under that title, and returns when it has it. */
static struct process start(const char *program, const char *title, const char *argument,
	const char *script)
{
	struct process process;
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		dup2(ready[1], 1);
		execl(program, title, argument, script, NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	assert_true(process_find(pid, &process));
	return process;
}

static void end(struct process process)
{
	process_kill(&process);
	waitpid(process.pid, NULL, 0);
}

static void those_of_the_job_are_ended(void **state)
{
	struct process step = start(SELF, "slurmstepd: [77.0]", "stay", NULL),
				   batch = start(SELF, "slurmstepd: [77.batch]", "stay", NULL);
	assert_int_equal(left_stepd_end(77, 0), 2);
	assert_true(process_wait(&step, HANG_SECONDS));
	assert_true(process_wait(&batch, HANG_SECONDS));
	end(step);
	end(batch);
	assert_int_equal(left_stepd_end(77, 0), 0);
}

static void one_that_ends_by_itself_is_waited_for(void **state)
{
	struct process step = start(SELF, "slurmstepd: [77.0]", "leave", NULL);
	assert_int_equal(left_stepd_end(77, HANG_SECONDS), 0);
	int status;
	assert_int_equal(waitpid(step.pid, &status, 0), step.pid);
	assert_true(WIFEXITED(status));
}

static void all_others_are_left_alone(void **state)
{
	const struct process others[] = {
		start(SELF, "slurmstepd: [7.0]", "stay", NULL),
		start(SELF, "slurmstepd: [777.0]", "stay", NULL),
		start(SELF, "slurmd: [77.0]", "stay", NULL),
		start(SELF, "slurmstepd: [77.0]", "parent", NULL),
		start("/bin/sh", "slurmstepd: [77.0]", "-c", "echo; kill -STOP $$"),
	};
	assert_int_equal(left_stepd_end(77, 0), 0);
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		assert_true(process_runs(&others[i]));
		end(others[i]);
	}
}

/* Stopped, or killed and not waited for: 'T' or 'Z' once that has happened. */
static void wait_for_state(pid_t pid, char wanted)
{
	char path[40], state = ' ';
	struct deadline deadline = deadline_in(HANG_SECONDS);
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	do {
		FILE *file = fopen(path, "r");
		assert_non_null(file);
		assert_int_equal(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
		fclose(file);
	} while (state != wanted && deadline_sleep(deadline, 0.01));
	assert_int_equal(state, wanted);
}

/* Its first child. */
static pid_t child_of(pid_t pid)
{
	char path[60];
	int child;
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &child), 1);
	fclose(file);
	return child;
}

static void a_script_is_stopped_and_its_srun_killed(void **state)
{
	struct process batch = start(SELF, "slurmstepd: [77.batch]", "script", NULL),
				   step = start(SELF, "slurmstepd: [77.0]", "script", NULL),
				   other = start(SELF, "slurmstepd: [7.batch]", "script", NULL);
	const pid_t script = child_of(batch.pid), srun = child_of(script);
	assert_int_equal(left_script_stop(77, step.pid), 2);
	wait_for_state(script, 'T');
	wait_for_state(srun, 'Z');
	wait_for_state(batch.pid, 'S');
	wait_for_state(child_of(child_of(step.pid)), 'S');
	wait_for_state(child_of(child_of(other.pid)), 'S');
	end(batch);
	end(step);
	end(other);
}

/* Slurm may give the next attempt the same node while a step of the one before is not gone yet. */
static void the_script_of_the_next_attempt_goes_on(void **state)
{
	struct process step = start(SELF, "slurmstepd: [77.0]", "stay", NULL), next;
	for (;; end(next)) {
		next = start(SELF, "slurmstepd: [77.batch]", "script", NULL);
		if (next.start > step.start)
			break;
	}
	assert_int_equal(left_script_stop(77, step.pid), 0);
	wait_for_state(child_of(next.pid), 'S');
	wait_for_state(child_of(child_of(next.pid)), 'S');
	end(next);
	end(step);
}

__attribute__((noreturn)) static void wait_for_ever(void)
{
	for (;;)
		pause();
}

/* A child that does that. */
static void begin(const char *child)
{
	if (fork() != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execl(SELF, child, child, NULL);
	_exit(1);
}

/* What a started copy of this program does: it tells that it runs, once those do that it has begun,
 * and stays, for ever or for a moment, alone or with a child. */
static int play(const char *part)
{
	const bool script = strcmp(part, "script") == 0;
	if (script || strcmp(part, "shell") == 0) {
		begin(script ? "shell" : "srun");
		wait_for_ever();
	}
	if (strcmp(part, "srun") == 0)
		prctl(PR_SET_NAME, "srun");
	if (strcmp(part, "parent") == 0 && fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	if (write(1, "", 1) != 1)
		return 1;
	if (strcmp(part, "leave") == 0)
		return usleep(100000);
	wait_for_ever();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_of_the_job_are_ended),
		cmocka_unit_test(one_that_ends_by_itself_is_waited_for),
		cmocka_unit_test(all_others_are_left_alone),
		cmocka_unit_test(a_script_is_stopped_and_its_srun_killed),
		cmocka_unit_test(the_script_of_the_next_attempt_goes_on),
	};
	if (argc > 1)
		return play(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
