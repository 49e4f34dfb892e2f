/* SPDX-License-Identifier: Apache-2.0 */
/* notice: it sets the flag, however often it comes, and never runs on a thread that computes,
 * unless that thread has lifted the mask. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/clock.h"
#include "common/notice.h"
#include "tests/unit/hang.h"

/* Threads of this process that have not blocked `signal`, by /proc. */
static int threads_open_to(int signal)
{
	int open = 0;
	char path[300], line[256];
	DIR *tasks = opendir("/proc/self/task");
	assert_non_null(tasks);
	for (struct dirent *task; (task = readdir(tasks));) {
		unsigned long long blocked = 0;
		snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
		FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "r");
		if (!status)
			continue;
		while (fgets(line, sizeof line, status))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(status);
		open += !(blocked >> (signal - 1) & 1);
	}
	closedir(tasks);
	return open;
}

static void notices_are_taken_and_no_thread_is_interrupted(void **state)
{
	struct err err;
	static const int signals[] = { SIGTERM, SIGUSR1, SIGUSR2, SIGINT };
	/* As under a parent that ignores it: nohup, or a shell with a trap. */
	signal(SIGUSR2, SIG_IGN);
	assert_int_equal(notice_fd(), -1);
	assert_int_equal(notice_take(true, &err), 0);
	assert_int_equal(notice_signal(), 0);
	struct pollfd comes = { .fd = notice_fd(), .events = POLLIN };
	assert_int_equal(poll(&comes, 1, 0), 0);
	for (int i = 0; i < 4; i++) {
		/* sigwait opens the one thread that waits while it waits. */
		assert_true(threads_open_to(signals[i]) <= 1);
	}
	for (int i = 0; i < 20; i++) {
		assert_int_equal(kill(getpid(), SIGUSR2), 0);
		struct deadline deadline = deadline_in(HANG_SECONDS);
		while (!notice_signal() && deadline_sleep(deadline, 0.001))
			;
		assert_int_equal(notice_signal(), SIGUSR2);
	}
	assert_int_equal(poll(&comes, 1, 1000 * HANG_SECONDS), 1);
	assert_int_equal(notice_take(true, &err), 0);
	assert_int_equal(notice_fd(), comes.fd);
	/* The first one counts. */
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	deadline_sleep(deadline_in(1), 0.1);
	assert_int_equal(notice_signal(), SIGUSR2);
	assert_string_equal(notice_name(notice_signal()), "SIGUSR2");
}

static bool is_blocked(int signal)
{
	sigset_t set;
	pthread_sigmask(SIG_SETMASK, NULL, &set);
	return sigismember(&set, signal);
}

/* What a process of its own does: a notice is for ever. */
static void lift_the_mask_and_get_a_notice(void)
{
	struct err err;
	struct sigaction action;
	sigset_t set;
	if (notice_take(false, &err) < 0 || !is_blocked(SIGTERM) || is_blocked(SIGINT))
		_exit(1);
	sigaction(SIGINT, NULL, &action);
	if (action.sa_handler != SIG_DFL)
		_exit(2);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	errno = 42;
	raise(SIGTERM); /* to this thread */
	struct pollfd comes = { .fd = notice_fd(), .events = POLLIN };
	if (errno != 42 || notice_signal() != SIGTERM || poll(&comes, 1, 0) != 1)
		_exit(3);
	if (notice_take(false, &err) < 0 || !is_blocked(SIGTERM))
		_exit(4);
	notice_record(SIGUSR1);
	_exit(notice_signal() == SIGTERM ? 0 : 5);
}

static void a_thread_that_lifted_the_mask_gets_the_notice_and_lives(void **state)
{
	int status;
	pid_t child = fork();
	if (child == 0)
		lift_the_mask_and_get_a_notice();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_that_lifted_the_mask_gets_the_notice_and_lives),
		cmocka_unit_test(notices_are_taken_and_no_thread_is_interrupted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
