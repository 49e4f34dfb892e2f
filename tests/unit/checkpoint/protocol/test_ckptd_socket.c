/* SPDX-License-Identifier: Apache-2.0 */
/* The service's abstract name: found from a container in which its path is missing, by its own user
 * alone. */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_socket.h"
#include "tests/unit/checkpoint/service/ckptd_node.h"

#define OTHER_USER 65534
#define NO_CONTAINER 99

/* ---- containers ---- */

static bool write_text(const char *path, const char *text)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

typedef int in_container(const char *socket, void *arg);

/* Runs `task` in namespaces of its own, where its user is `user` (-1: one whom nobody maps) and
 * `folder` is empty. Returns what it returned; NO_CONTAINER where this machine has no such thing.
 */
static int contain(int namespaces, int user, const char *folder, in_container *task,
	const char *socket, void *arg)
{
	char map[40];
	uid_t self = geteuid();
	pid_t pid = fork();
	if (pid > 0)
		return ckptd_node_end_of(pid);
	snprintf(map, sizeof map, "%d %u 1", user, (unsigned)self);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | namespaces) < 0
		|| (user >= 0 && !write_text("/proc/self/uid_map", map))
		|| mount("none", folder, "tmpfs", 0, NULL) < 0)
		_exit(NO_CONTAINER);
	int status = 0;
	pid = namespaces & CLONE_NEWPID ? fork() : 0;
	if (pid == 0)
		_exit(task(socket, arg));
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

/* ---- finding it ---- */

/* Whether a service answers there. If none does, the reason goes to standard error. */
static int asks(const char *socket, void *arg)
{
	struct ckptd_message answer;
	struct err err;
	if (ckptd_control_status(socket, &answer, &err) == 0) {
		ckptd_message_release(&answer);
		return 0;
	}
	fprintf(stderr, "%s\n", err.text);
	return arg && !strstr(err.text, arg) ? 2 : 1;
}

static void a_container_without_the_path_finds_it(void **state)
{
	const char *socket = ckptd_node_folder("inside");
	const char *folder = files_path("inside");
	pid_t pid = ckptd_node_service(socket);
	int root = contain(0, 0, folder, asks, socket, NULL);
	if (root == NO_CONTAINER)
		skip();
	assert_int_equal(root, 0);
	assert_int_equal(contain(0, 1000, folder, asks, socket, NULL), 0);
	assert_int_equal(contain(CLONE_NEWPID, 0, folder, asks, socket, NULL), 0);
	/* In a network namespace of its own nothing has that name. */
	assert_int_equal(contain(CLONE_NEWNET, 0, folder, asks, socket,
						 "at its abstract name: Connection refused"),
		1);
	/* Who is the same number as everybody else can't tell who is there. */
	assert_int_equal(contain(0, -1, folder, asks, socket, "may be anybody's"), 1);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
	assert_int_equal(contain(0, 0, folder, asks, socket,
						 "at its abstract name: Connection refused"),
		1);
}

static void a_relative_path_has_no_name(void **state)
{
	pid_t pid;
	struct err err;
	assert_int_equal(ckptd_socket_connect("nowhere/ckptd.sock", &pid, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_null(strstr(err.text, "abstract"));
}

/* ---- who else may have the name ---- */

static socklen_t abstract_name(const char *path, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un) { .sun_family = AF_UNIX };
	strcpy(address->sun_path + 1, path);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path));
}

static int listen_by_name(const char *path)
{
	struct sockaddr_un address;
	socklen_t length = abstract_name(path, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, 5) == 0 ? fd
																							   : -1;
}

/* A process of another user that listens at the name. */
static pid_t squat(const char *path)
{
	int ends[2];
	char word;
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0 || listen_by_name(path) < 0
			|| write(ends[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &word, 1), 1);
	close(ends[0]);
	return pid;
}

static void a_stranger_who_has_the_name_is_refused(void **state)
{
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *socket = ckptd_node_folder("squat");
	const char *folder = files_path("squat");
	pid_t stranger = squat(socket), pid;
	struct err err;
	assert_int_equal(ckptd_socket_connect(socket, &pid, &err), -1);
	assert_non_null(strstr(err.text, "belongs to user 65534, not to 0"));
	/* Nobody is there, for who asks whether there is something to finish. */
	assert_int_equal(err.status, EXIT_LOST);
	int root = contain(0, 0, folder, asks, socket, "belongs to user 65534, not to 0");
	if (root != NO_CONTAINER) {
		assert_int_equal(root, 1);
		assert_int_equal(contain(0, -1, folder, asks, socket, "may be anybody's"), 1);
	}
	/* The service says so, and does without. */
	pid = ckptd_node_service(socket);
	assert_true(ckptd_node_says("log", "couldn't listen at the abstract name"));
	assert_int_equal(asks(socket, NULL), 0);
	kill(stranger, SIGKILL);
	waitpid(stranger, NULL, 0);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
}

/* Comes to the name so often, as another user. */
static void knock(const char *path, int times)
{
	struct sockaddr_un address;
	socklen_t length = abstract_name(path, &address);
	pid_t pid = fork();
	if (pid > 0) {
		assert_int_equal(ckptd_node_end_of(pid), 0);
		return;
	}
	if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
		_exit(1);
	for (int i = 0; i < times; i++) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&address, length) < 0)
			_exit(2);
		close(fd);
	}
	_exit(0);
}

static void strangers_who_knock_fill_no_log(void **state)
{
	AUTO_FREE char *log = NULL;
	size_t size;
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *socket = ckptd_node_folder("knock");
	pid_t pid = ckptd_node_service(socket);
	knock(socket, 300);
	assert_int_equal(asks(socket, NULL), 0);
	CKPTD_UNTIL(ckptd_node_says("log", "belongs to user 65534"));
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
	assert_int_equal(io_read_file(AT_FDCWD, files_path("log"), 1 << 20, &log, &size, NULL), 0);
	assert_null(strstr(strstr(log, "is refused") + 1, "is refused"));
}

/* ---- a service that can't be seen ---- */

static int nothing(const char *socket, void *arg)
{
	return 0;
}

/* The service's side of one connection: ATTACH is answered, then the connection ends. */
static void attach_and_drop(int listening)
{
	const struct ckptd_message attached = { .type = CKPTD_ATTACHED, .attached = { .pid = 4242 } };
	struct ckptd_message message;
	struct ckptd_conn conn;
	struct pollfd wait = { .fd = listening, .events = POLLIN };
	assert_int_equal(poll(&wait, 1, 1000 * HANG_SECONDS), 1);
	int fd = accept(listening, NULL, NULL);
	assert_true(fd >= 0);
	ckptd_conn_open(&conn, fd);
	assert_int_equal(ckptd_conn_await(&conn, &message, deadline_in(HANG_SECONDS), NULL), 1);
	assert_int_equal(message.type, CKPTD_ATTACH);
	ckptd_message_release(&message);
	assert_int_equal(ckptd_conn_send(&conn, &attached, NULL, 0, NULL), 0);
	ckptd_conn_close(&conn);
}

struct unseen {
	struct ckptd_fixture fixture;
	int lost; /* is told when the service was looked for in vain */
	int go;   /* tells that it has gone */
};

/* In a pid namespace of its own. */
static int saves_when_it_is_gone(const char *socket, void *arg)
{
	struct unseen *unseen = arg;
	struct ckptd_fixture *fixture = &unseen->fixture;
	struct err err;
	char word;
	fixture->plan.socket = socket;
	fixture->plan.timeout = HANG_SECONDS / 20; /* which passes in vain */
	fixture->client = ckptd_client_open(&fixture->plan, &err);
	if (!fixture->client || ckptd_client_service(fixture->client) != 4242)
		return 1;
	/* It listens, so it lives, and may be writing. */
	CKPTD_UNTIL(ckptd_fixture_events(fixture, CKPTD_GONE, -1)
		|| ckptd_fixture_events(fixture, CKPTD_RESTARTED, -1));
	if (ckptd_fixture_events(fixture, CKPTD_RESTARTED, -1))
		return 2;
	if (write(unseen->lost, "x", 1) != 1 || read(unseen->go, &word, 1) != 1)
		return 3;
	ckptd_fixture_durable(fixture, 2);
	return 0;
}

static void one_that_cannot_be_seen_is_replaced_when_nobody_listens(void **state)
{
	static struct unseen unseen;
	const char *socket = ckptd_node_folder("unseen");
	int lost[2], go[2];
	char word;
	if (contain(CLONE_NEWPID, 0, files_path("unseen"), nothing, socket, NULL) != 0)
		skip();
	int listening = listen_by_name(socket);
	assert_true(listening >= 0);
	ckptd_fixture_make(&unseen.fixture, files_path("unseen.run"), 0, 0, 1, NULL);
	assert_int_equal(pipe(lost), 0);
	assert_int_equal(pipe(go), 0);
	unseen.lost = lost[1];
	unseen.go = go[0];
	pid_t pid = fork();
	if (pid == 0) {
		close(listening);
		_exit(
			contain(CLONE_NEWPID, 0, files_path("unseen"), saves_when_it_is_gone, socket, &unseen));
	}
	close(lost[1]);
	attach_and_drop(listening);
	assert_int_equal(read(lost[0], &word, 1), 1);
	close(listening);
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(ckptd_node_end_of(pid), 0);
	ckptd_fixture_check(&unseen.fixture, 2);
	for (int i = 0; i < 3; i++)
		close((int[]) { lost[0], go[0], go[1] }[i]);
	ckptd_fixture_end(&unseen.fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_container_without_the_path_finds_it),
		cmocka_unit_test(a_relative_path_has_no_name),
		cmocka_unit_test(a_stranger_who_has_the_name_is_refused),
		cmocka_unit_test(strangers_who_knock_fill_no_log),
		cmocka_unit_test(one_that_cannot_be_seen_is_replaced_when_nobody_listens),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
