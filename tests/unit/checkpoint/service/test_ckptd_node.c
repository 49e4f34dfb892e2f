/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckptd as a node's service: at a socket that only its user can come to, until its job is
 * over. */
#include "config.h"

#include <grp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/checkpoint/service/ckptd_node.h"

#define LARGE (96u << 20)
#define OTHER_USER 65534

static void a_node_s_service_outlives_its_client_and_finishes(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = ckptd_node_folder("life");
	pid_t pid = ckptd_node_service(socket);
	ckptd_fixture_make(&fixture, files_path("life.run"), LARGE, 0, 1, NULL);
	setenv("MUSTER_CKPTD", socket, 1);
	ckptd_fixture_open(&fixture);
	unsetenv("MUSTER_CKPTD");
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	ckptd_fixture_durable(&fixture, 1);
	for (int signal = 1; signal < 32; signal++)
		if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGUSR1
			|| signal == SIGUSR2 || signal == SIGQUIT || signal == SIGPIPE)
			kill(pid, signal);
	assert_int_equal(CKPTD_RUN("status", "--status", socket), 0);
	assert_true(ckptd_node_says("status", "job 4711"));
	assert_true(ckptd_node_says("status",
		"life.run: attempt 2, part 1 of 1, client connected, step 1 is durable"));
	ckptd_fixture_save(&fixture, 2);
	ckptd_fixture_save(&fixture, 3);
	ckptd_client_close(fixture.client, 0);
	fixture.client = NULL;
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket, "--timeout", "120"), 0);
	assert_int_equal(ckptd_node_end_of(pid), 0);
	assert_true(ckptd_node_says("finish", "") && !ckptd_node_says("finish", "step"));
	assert_true(ckptd_node_says("log", "step 3 of") && ckptd_node_says("log", "GB/s"));
	assert_false(ckptd_node_has(socket));
	ckptd_fixture_check(&fixture, 2);
	ckptd_fixture_check(&fixture, 3);
	/* Nobody is there any more. */
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	assert_true(ckptd_node_says("finish", "nothing to finish"));
	assert_int_equal(CKPTD_RUN("status", "--status", socket), EXIT_LOST);
	ckptd_fixture_end(&fixture);
}

/* A step that is begun anew waits for what the former one has handed over. */
static void a_service_settles_when_its_clients_are_gone_and_all_is_durable(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = ckptd_node_folder("calm");
	pid_t pid = ckptd_node_service(socket);
	assert_int_equal(CKPTD_RUN("settle", "--settle", socket), 0);
	ckptd_fixture_make(&fixture, files_path("calm.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	assert_int_equal(CKPTD_RUN("settle", "--settle", socket, "--timeout", "0.1"), EXIT_LOST);
	assert_true(ckptd_node_says("settle", "not durable after 0.1 s"));
	ckptd_fixture_save(&fixture, 1);
	ckptd_fixture_save(&fixture, 2);
	ckptd_client_close(fixture.client, 0);
	fixture.client = NULL;
	assert_int_equal(CKPTD_RUN("settle", "--settle", socket, "--timeout", "120"), 0);
	ckptd_fixture_check(&fixture, 2);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
	assert_int_equal(CKPTD_RUN("settle", "--settle", socket), EXIT_LOST);
	ckptd_fixture_end(&fixture);
}

static void what_is_not_finished_in_time_is_said(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = ckptd_node_folder("time");
	pid_t pid = ckptd_node_service(socket);
	ckptd_fixture_make(&fixture, files_path("time.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	kill(pid, SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	ckptd_fixture_save(&fixture, 2);
	ckptd_client_close(fixture.client, 0);
	fixture.client = NULL;
	pid_t finish = CKPTD_START("finish", "--finish", socket, "--timeout", "0");
	deadline_sleep(deadline_in(5), 0.2);
	kill(pid, SIGCONT);
	assert_int_equal(ckptd_node_end_of(finish), EXIT_LOST);
	assert_true(ckptd_node_says("finish", "lost: step 1 of")
		&& ckptd_node_says("finish", "lost: step 2 of"));
	ckptd_node_end_of(pid);
	assert_false(ckptd_fixture_has(&fixture, 2));
	ckptd_fixture_end(&fixture);
}

/* A save that fails while nobody listens is remembered for who asks at the end. */
static void a_failure_that_nobody_heard_is_said(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	const char *socket = ckptd_node_folder("heard");
	pid_t pid = ckptd_node_service(socket);
	ckptd_fixture_make(&fixture, files_path("heard.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	kill(pid, SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	ckptd_client_close(fixture.client, 0);
	fixture.client = NULL;
	assert_int_equal(owner_release(&fixture.dir, fixture.token, &err), 0);
	struct owner owner = { .attempt = 3 };
	assert_int_equal(owner_claim(&fixture.dir, &owner, NULL, NULL, 5, &err), 0);
	kill(pid, SIGCONT);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket, "--timeout", "120"), EXIT_LOST);
	assert_true(ckptd_node_says("finish", "step 1 of") && ckptd_node_says("finish", "another"));
	ckptd_node_end_of(pid);
	ckptd_fixture_end(&fixture);
}

static void a_service_that_does_not_answer_is_killed(void **state)
{
	const char *socket = ckptd_node_folder("stuck");
	pid_t pid = ckptd_node_service(socket);
	int status;
	kill(pid, SIGSTOP);
	struct ckptd_message finished;
	struct err err;
	/* The answer is waited for five seconds longer than it may take. */
	assert_int_equal(ckptd_control_finish(socket, 0, &finished, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	CKPTD_UNTIL(waitpid(pid, &status, WNOHANG) == pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* Its socket is dead, and the next service takes its place. */
	assert_true(ckptd_node_has(socket));
	assert_int_equal(ckptd_control_finish(socket, 0, &finished, &err), 0);
	pid = ckptd_node_service(socket);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
}

static void a_dead_node_s_service_is_replaced_by_an_own_one(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = ckptd_node_folder("dead");
	pid_t pid = ckptd_node_service(socket);
	ckptd_fixture_make(&fixture, files_path("dead.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	ckptd_fixture_save(&fixture, 1);
	CKPTD_UNTIL(ckptd_fixture_saving(&fixture, 1));
	kill(pid, SIGKILL);
	ckptd_fixture_durable(&fixture, 2);
	ckptd_fixture_check(&fixture, 1);
	assert_true(ckptd_client_service(fixture.client) != pid);
	ckptd_fixture_end(&fixture);
	int status;
	waitpid(pid, &status, 0);
}

/* Its descriptors are closed, as far as others can see, but the process is there. */
static void close_sockets(pid_t pid)
{
	int process = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_true(process >= 0);
	for (int number = 0; number < 64; number++) {
		int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
		if (fd >= 0) {
			shutdown(fd, SHUT_RDWR);
			close(fd);
		}
	}
	close(process);
}

static void *kill_late(void *arg)
{
	const pid_t *pid = arg;
	deadline_sleep(deadline_in(10), 4);
	kill(*pid, SIGKILL);
	return NULL;
}

/* A disk that stalls holds up the end of a process that was killed. */
static void a_service_that_takes_long_to_die_is_waited_for(void **state)
{
	struct ckptd_fixture fixture;
	pthread_t killer;
	int status;
	if (geteuid() != 0) {
		print_message("only root can get at the service's connections\n");
		skip();
	}
	const char *socket = ckptd_node_folder("long");
	pid_t pid = ckptd_node_service(socket);
	ckptd_fixture_make(&fixture, files_path("long.run"), 0, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	ckptd_fixture_durable(&fixture, 1);
	kill(pid, SIGSTOP);
	close_sockets(pid);
	assert_int_equal(pthread_create(&killer, NULL, kill_late, &pid), 0);
	ckptd_fixture_durable(&fixture, 2);
	assert_int_equal(pthread_join(killer, NULL), 0);
	ckptd_fixture_check(&fixture, 2);
	assert_true(ckptd_client_service(fixture.client) != pid);
	ckptd_fixture_end(&fixture);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void it_ends_when_its_job_or_its_folder_is_gone(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = ckptd_node_folder("alive");
	char command[500];
	int length = snprintf(command, sizeof command,
		"#!/bin/sh\n[ \"$*\" = 'of the job' ] && echo >>%s; test -e %s\n", files_path("asked"),
		files_path("job"));
	files_write("job", "", 0);
	files_write("ask", command, (size_t)length);
	assert_int_equal(chmod(files_path("ask"), 0755), 0);
	snprintf(command, sizeof command, "%s of the  job", files_path("ask"));
	pid_t pid = CKPTD_START("log", "--socket", socket, "--allow-root", "--alive", command,
		"--alive-every", "0.1");
	CKPTD_UNTIL(ckptd_node_says("asked", "\n\n\n"));
	ckptd_fixture_make(&fixture, files_path("alive.run"), 0, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	unlink(files_path("job"));
	deadline_sleep(deadline_in(5), 0.5);
	ckptd_fixture_durable(&fixture, 1);
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	ckptd_fixture_end(&fixture);
	assert_int_equal(ckptd_node_end_of(pid), 0);
	assert_true(ckptd_node_says("log", "the job is gone"));
	assert_false(ckptd_node_has(socket));
	pid = ckptd_node_service(socket);
	char moved[600];
	snprintf(moved, sizeof moved, "%s.gone", socket);
	assert_int_equal(rename(socket, moved), 0);
	assert_int_equal(ckptd_node_end_of(pid), 0);
	assert_true(ckptd_node_has(moved));
}

static void it_detaches(void **state)
{
	const char *socket = ckptd_node_folder("detach");
	struct ckptd_message message;
	struct err err;
	assert_int_equal(CKPTD_RUN("log", "--socket", socket, "--allow-root", "--detach"), 0);
	assert_int_equal(ckptd_control_status(socket, &message, &err), 0);
	pid_t pid = (pid_t)message.state.pid;
	ckptd_message_release(&message);
	assert_int_equal(getsid(pid), pid);
	/* A second one is told why not. */
	assert_int_equal(CKPTD_RUN("log", "--socket", socket, "--allow-root", "--detach"), EXIT_USAGE);
	assert_true(ckptd_node_says("log", "another one listens"));
	assert_int_equal(ckptd_control_finish(socket, 5, &message, &err), 1);
	assert_int_equal(message.finished.count, 0);
	ckptd_message_release(&message);
	assert_int_equal(ckptd_node_end_of(pid), 0);
}

/* Whether a client finds the node's service good for a directory of that user's. */
static bool is_used_for(const char *socket, pid_t service, const char *name, uid_t user)
{
	struct ckptd_fixture fixture;
	ckptd_fixture_make(&fixture, files_path(name), 0, 0, 1, NULL);
	assert_int_equal(fchown(fixture.dir.fd, user, 0), 0);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	bool used = ckptd_client_service(fixture.client) == service;
	ckptd_fixture_durable(&fixture, 1);
	ckptd_fixture_check(&fixture, 1);
	ckptd_fixture_end(&fixture);
	return used;
}

static void a_service_without_a_group_is_for_the_user_s_own_directories_only(void **state)
{
	const gid_t groups[] = { 60041, 60042, 60043 };
	if (geteuid() != 0) {
		print_message("only root can change its groups\n");
		skip();
	}
	const char *socket = ckptd_node_folder("groups");
	assert_int_equal(setgroups(2, groups), 0);
	pid_t pid = ckptd_node_service(socket);
	assert_true(is_used_for(socket, pid, "same.run", OTHER_USER));
	assert_int_equal(setgroups(1, groups + 1), 0);
	assert_true(is_used_for(socket, pid, "fewer.run", OTHER_USER));
	assert_int_equal(setgroups(3, groups), 0);
	assert_true(is_used_for(socket, pid, "own.run", geteuid()));
	assert_false(is_used_for(socket, pid, "shared.run", OTHER_USER));
	assert_int_equal(setgroups(0, NULL), 0);
	/* Nor is a primary group that it lacks. */
	assert_int_equal(setegid(60043), 0);
	assert_false(is_used_for(socket, pid, "primary.run", OTHER_USER));
	assert_int_equal(setegid(0), 0);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket, "--timeout", "120"), 0);
	ckptd_node_end_of(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_s_service_outlives_its_client_and_finishes),
		cmocka_unit_test(a_service_settles_when_its_clients_are_gone_and_all_is_durable),
		cmocka_unit_test(what_is_not_finished_in_time_is_said),
		cmocka_unit_test(a_failure_that_nobody_heard_is_said),
		cmocka_unit_test(a_service_that_does_not_answer_is_killed),
		cmocka_unit_test(a_dead_node_s_service_is_replaced_by_an_own_one),
		cmocka_unit_test(a_service_that_takes_long_to_die_is_waited_for),
		cmocka_unit_test(it_ends_when_its_job_or_its_folder_is_gone),
		cmocka_unit_test(it_detaches),
		cmocka_unit_test(a_service_without_a_group_is_for_the_user_s_own_directories_only),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
