/* SPDX-License-Identifier: Apache-2.0 */
/* restart: which ends of a step are followed by another, and which nodes are gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "restart/step.h"
#include "tests/unit/hang.h"

static void a_step_is_judged_by_its_ranks_and_its_status(void **state)
{
	static const struct {
		const char *what;
		struct step step;
		enum step_verdict verdict;
	} cases[] = {
		{ "finished", { .status = 0 }, STEP_OVER },
		{ "a rank was killed", { .status = 137, .first.found = true }, STEP_AGAIN },
		{ "ranks have lost a peer", { .status = 69, .first.found = true }, STEP_AGAIN },
		{ "srun itself has failed once a rank had", { .status = 1, .first.found = true },
			STEP_AGAIN },
		{ "a rank has failed for good", { .status = 1, .first.found = true, .final = true },
			STEP_OVER },
		{ "the same, among others that were killed for it",
			{ .status = 137, .first.found = true, .final = true }, STEP_OVER },
		{ "a notice", { .status = 75, .leaving = true }, STEP_OVER },
		{ "a notice, and a rank that was late", { .status = 137, .leaving = true }, STEP_OVER },
		{ "a signal came", { .status = 143, .told = true, .first.found = true }, STEP_OVER },
		{ "a node is silent", { .status = 137, .killed = true }, STEP_AGAIN },
		{ "a node is silent after a notice", { .status = 137, .killed = true, .leaving = true },
			STEP_OVER },
		{ "a node is silent after a signal", { .status = 137, .killed = true, .told = true },
			STEP_OVER },
		/* Without the plugin, srun's status is all there is. */
		{ "a rank was killed", { .status = 137 }, STEP_AGAIN },
		{ "ranks have lost a peer", { .status = 69 }, STEP_AGAIN },
		{ "a notice", { .status = 75 }, STEP_OVER },
		{ "a rank or srun has failed", { .status = 1 }, STEP_OVER },
		{ "wrong usage", { .status = 2 }, STEP_OVER },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		print_message("# %s\n", cases[i].what);
		assert_int_equal(step_judge(&cases[i].step), cases[i].verdict);
	}
}

/* One end of a connection whose other end is closed: in order, or by a RST. */
static int ended_connection(bool reset)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof address;
	const struct linger at_once = { .l_onoff = 1 };
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, size), 0);
	int other = accept(listener, NULL, NULL);
	if (reset)
		setsockopt(other, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
	close(other);
	close(listener);
	return fd;
}

static void a_connection_that_was_reset_is_not_the_end_of_its_node(void **state)
{
	struct err err;
	struct node all[] = {
		{ .name = "n1", .used = true, .fd = ended_connection(false) },
		{ .name = "n2", .used = true, .fd = ended_connection(true) },
	};
	struct nodes nodes = { .all = all, .count = 2 };
	struct step step = { .nodes = &nodes, .silence = 10 };
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)"exit 3", NULL };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	step.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	assert_int_equal(step_start(&step, argv, NULL, &err), 0);
	assert_int_equal(step_wait(&step, &err), 0);
	close(step.signals);
	assert_int_equal(step.status, 3);
	assert_false(step.killed);
	assert_true(all[0].heard && !all[0].lost);
	assert_true(!all[1].heard && !all[1].lost);
}

/* Another process, which is a node: it tells of a rank's end in two parts, of which the second
 * comes once the step has ended, which waits for the first. */
static pid_t tell_in_parts(const char *value, int told, int ended)
{
	const struct task_report report = { 2, 4, 3 << 8, "n1", "", 0 };
	struct end_address address;
	char message[END_MESSAGE_MAX], byte = '\n';
	assert_true(end_address_read("127.0.0.1", value, &address));
	size_t size = end_write_report(address.secret, &report, message), half = size / 2;
	pid_t child = fork();
	if (child != 0)
		return child;
	int fd = end_channel_hold(&address, geteuid(), message, half, HANG_SECONDS);
	_exit(fd < 0 || write(told, &byte, 1) != 1 || read(ended, &byte, 1) != 0
		|| send(fd, message + half, size - half, 0) != (ssize_t)(size - half));
}

static void a_word_that_comes_in_parts_is_heard_out(void **state)
{
	struct err err;
	struct node all[] = { { .name = "n1", .used = true, .fd = -1 } };
	struct nodes nodes = { .all = all, .count = 1 };
	struct step step = { .nodes = &nodes, .silence = 10 };
	int told[2], ended[2], status;
	char script[100], *argv[] = { (char *)"sh", (char *)"-c", script, NULL };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	step.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	assert_int_equal(pipe(told) | pipe(ended), 0);
	snprintf(script, sizeof script, "read -r line <&%d; exit 143", told[0]);
	assert_int_equal(step_start(&step, argv, NULL, &err), 0);
	close(ended[1]);
	pid_t node = tell_in_parts(getenv(END_CHANNEL_RUN), told[1], ended[0]);
	assert_int_equal(step_wait(&step, &err), 0);
	assert_int_equal(waitpid(node, &status, 0), node);
	assert_int_equal(status, 0);
	close(step.signals);
	close(told[0]);
	close(told[1]);
	close(ended[0]);
	assert_int_equal(step.first.first.rank, 2);
	assert_int_equal(step_judge(&step), STEP_OVER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_is_judged_by_its_ranks_and_its_status),
		cmocka_unit_test(a_connection_that_was_reset_is_not_the_end_of_its_node),
		cmocka_unit_test(a_word_that_comes_in_parts_is_heard_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
