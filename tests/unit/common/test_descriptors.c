/* SPDX-License-Identifier: Apache-2.0 */
/* descriptors: a forked process closes what is marked, and nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/descriptors.h"

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Which of the three are open in a forked process, as bits. */
static int open_in_child(const int fds[3])
{
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(is_open(fds[0]) | is_open(fds[1]) << 1 | is_open(fds[2]) << 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_forked_process_closes_what_is_marked(void **state)
{
	int pair[2], fds[3];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	fds[0] = descriptors_own(pair[0]);
	fds[1] = pair[1];
	fds[2] = descriptors_own(open("/", O_RDONLY | O_DIRECTORY));
	assert_int_equal(fds[0], pair[0]);
	assert_int_equal(open_in_child(fds), 7);
	descriptors_close_in_children();
	descriptors_close_in_children();
	assert_int_equal(open_in_child(fds), 2);
	for (int i = 0; i < 3; i++)
		assert_true(is_open(fds[i]));
	/* A number that means something else by now is left alone. */
	assert_int_equal(dup2(STDERR_FILENO, fds[0]), fds[0]);
	assert_int_equal(open_in_child(fds), 3);
	close(fds[2]);
	assert_int_equal(open_in_child(fds), 3);
	close(fds[0]);
	close(fds[1]);
}

static void what_is_no_descriptor_passes(void **state)
{
	errno = EMFILE;
	assert_int_equal(descriptors_own(-1), -1);
	assert_int_equal(errno, EMFILE);
	assert_int_equal(descriptors_own(1 << 20), 1 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_forked_process_closes_what_is_marked),
		cmocka_unit_test(what_is_no_descriptor_passes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
