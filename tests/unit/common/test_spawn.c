/* SPDX-License-Identifier: Apache-2.0 */
/* spawn: a program starts with no signal blocked or ignored, whatever we block and ignore. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/spawn.h"
#include "common/thread.h"

/* A line of /proc/self/status of the program that was started, without the signals that glibc
 * keeps. */
static unsigned long long mask_of(const char *text, const char *name)
{
	unsigned long long mask = 1;
	const char *at = strstr(text, name);
	assert_non_null(at);
	assert_int_equal(sscanf(at + strlen(name), " %llx", &mask), 1);
	return mask & ~(3ULL << 31);
}

static void a_program_starts_with_the_usual_signals(void **state)
{
	char text[8192], *argv[] = { (char *)"cat", (char *)"/proc/self/status", NULL };
	posix_spawn_file_actions_t actions;
	int out[2], status;
	sigset_t before;
	pid_t pid;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	thread_block_signals(&before);
	int error = spawn_program(&pid, "/bin/cat", &actions, argv, POSIX_SPAWN_SETPGROUP);
	thread_restore_signals(&before);
	assert_int_equal(error, 0);
	assert_int_equal(getpgid(pid), pid);
	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	size_t size = 0;
	for (ssize_t n; (n = read(out[0], text + size, sizeof text - 1 - size)) > 0;)
		size += (size_t)n;
	text[size] = '\0';
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(mask_of(text, "SigBlk:"), 0);
	assert_int_equal(mask_of(text, "SigIgn:"), 0);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	assert_int_equal(spawn_program(&pid, "/nowhere/at/all", NULL, argv, 0), ENOENT);
	close(out[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_starts_with_the_usual_signals),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
