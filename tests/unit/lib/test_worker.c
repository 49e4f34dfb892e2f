/* SPDX-License-Identifier: Apache-2.0 */
/* muster_worker_begin: only the trainer ends its worker. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "lib/muster.h"

/* A worker of this process, started with the mask of a rank. It ends with 3 when the pipe does. */
static pid_t start_worker(int *alive)
{
	int ends[2], begun[2];
	char byte;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(pipe(begun), 0);
	const pid_t trainer = getpid(), child = fork();
	if (child == 0) {
		close(ends[1]);
		if (muster_worker_begin(trainer) != MUSTER_OK || write(begun[1], "b", 1) != 1)
			_exit(1);
		while (read(ends[0], &byte, 1) > 0)
			;
		_exit(3);
	}
	close(ends[0]);
	close(begun[1]);
	assert_int_equal(read(begun[0], &byte, 1), 1);
	close(begun[0]);
	*alive = ends[1];
	return child;
}

/* Another process sends the signal, as slurmstepd does. */
static void send_from_elsewhere(pid_t to, int signal)
{
	int status;
	pid_t sender = fork();
	if (sender == 0)
		_exit(kill(to, signal) < 0);
	assert_int_equal(waitpid(sender, &status, 0), sender);
	assert_int_equal(status, 0);
}

static int end_of(pid_t worker)
{
	int status;
	assert_int_equal(waitpid(worker, &status, 0), worker);
	return status;
}

static void a_worker_outlives_slurm_s_signals(void **state)
{
	int alive;
	pid_t worker = start_worker(&alive);
	for (int i = 0; i < 3; i++) {
		send_from_elsewhere(worker, SIGTERM);
		send_from_elsewhere(worker, SIGUSR1);
		send_from_elsewhere(worker, SIGUSR2);
		assert_int_equal(kill(worker, SIGUSR2), 0);
	}
	/* Its reads go on, too. */
	assert_int_equal(write(alive, "x", 1), 1);
	close(alive);
	int status = end_of(worker);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void its_trainer_ends_it(void **state)
{
	int alive;
	pid_t worker = start_worker(&alive);
	assert_int_equal(kill(worker, SIGTERM), 0);
	assert_int_equal(end_of(worker), 0);
	close(alive);
}

static void what_is_no_process_is_refused(void **state)
{
	const int64_t wrong[] = { 0, -1, INT64_MIN, INT64_MAX };
	for (int i = 0; i < 4; i++) {
		assert_int_equal(muster_worker_begin(wrong[i]), MUSTER_USAGE);
		assert_non_null(strstr(muster_error(), "is no process"));
	}
}

int main(void)
{
	sigset_t notices;
	sigemptyset(&notices);
	sigaddset(&notices, SIGTERM);
	sigaddset(&notices, SIGUSR1);
	sigaddset(&notices, SIGUSR2);
	sigprocmask(SIG_BLOCK, &notices, NULL);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_worker_outlives_slurm_s_signals),
		cmocka_unit_test(its_trainer_ends_it),
		cmocka_unit_test(what_is_no_process_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
