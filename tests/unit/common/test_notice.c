/* SPDX-License-Identifier: Apache-2.0 */
/* notice: it sets the flag, however often it comes, and never runs on a thread that computes. */
#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
	assert_int_equal(notice_take(&err), 0);
	assert_int_equal(notice_signal(), 0);
	struct pollfd comes = { .fd = notice_fd(), .events = POLLIN };
	assert_int_equal(poll(&comes, 1, 0), 0);
	for (int i = 0; i < 4; i++) {
		struct sigaction action;
		sigaction(signals[i], NULL, &action);
		assert_true(action.sa_handler == SIG_DFL);
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
	assert_int_equal(notice_take(&err), 0);
	assert_int_equal(notice_fd(), comes.fd);
	/* The first one counts. */
	assert_int_equal(kill(getpid(), SIGTERM), 0);
	deadline_sleep(deadline_in(1), 0.1);
	assert_int_equal(notice_signal(), SIGUSR2);
	assert_string_equal(notice_name(notice_signal()), "SIGUSR2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(notices_are_taken_and_no_thread_is_interrupted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
