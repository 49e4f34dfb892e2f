/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckptd as a node's service: at a socket that only its user can come to, until its job is over. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/ckptd_conn.h"
#include "checkpoint/ckptd_control.h"
#include "checkpoint/ckptd_socket.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/io.h"
#include "tests/unit/ckptd_fixture.h"
#include "tests/unit/files.h"

#define LARGE (96u << 20)
#define OTHER_USER 65534

extern char **environ;

/* ---- the program ---- */

/* Runs it with these arguments (NULL ends them), its output going to the file; returns its pid. */
static pid_t start(const char *output, const char *const *arguments)
{
	char *argv[16] = { (char *)"muster-ckptd" };
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int count = 1;
	while (arguments[count - 1]) {
		argv[count] = (char *)(uintptr_t)arguments[count - 1];
		count++;
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, files_path(output), O_WRONLY | O_CREAT | O_TRUNC, 0644);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	assert_int_equal(posix_spawn(&pid, ckptd_program(), &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static int end_of(pid_t pid)
{
	int status;
	CKPTD_UNTIL(waitpid(pid, &status, WNOHANG) == pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define START(output, ...) start(output, (const char *const[]){ __VA_ARGS__, NULL })
#define RUN(output, ...) end_of(START(output, __VA_ARGS__))

/* Whether the file holds the text. */
static bool says(const char *output, const char *text)
{
	AUTO_FREE char *found = NULL;
	size_t size;
	return io_read_file(AT_FDCWD, files_path(output), 1 << 20, &found, &size, NULL) == 0 && strstr(found, text);
}

/* A folder of mode 0700 and the path of a socket in it. */
static char *make_folder(const char *name)
{
	static char path[500];
	snprintf(path, sizeof path, "%s/ckptd.sock", files_path(name));
	assert_int_equal(mkdir(files_path(name), 0700), 0);
	return path;
}

static bool is_there(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

static pid_t start_service(const char *socket)
{
	pid_t pid = START("log", "--socket", socket, "--job", "4711", "--allow-root");
	struct err err;
	struct ckptd_message state;
	CKPTD_UNTIL(ckptd_control_status(socket, &state, &err) == 0);
	assert_int_equal(state.state.pid, pid);
	assert_string_equal(state.state.job, "4711");
	ckptd_message_release(&state);
	return pid;
}

/* ---- life ---- */

static void a_node_s_service_outlives_its_client_and_finishes(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = make_folder("life");
	pid_t pid = start_service(socket);
	ckptd_fixture_make(&fixture, files_path("life.run"), LARGE, 0, 1, NULL);
	setenv("MUSTER_CKPTD", socket, 1);
	ckptd_fixture_open(&fixture);
	unsetenv("MUSTER_CKPTD");
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	ckptd_fixture_durable(&fixture, 1);
	for (int signal = 1; signal < 32; signal++)
		if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGUSR1 || signal == SIGUSR2 ||
			signal == SIGQUIT || signal == SIGPIPE)
			kill(pid, signal);
	assert_int_equal(RUN("status", "--status", socket), 0);
	assert_true(says("status", "job 4711") && says("status", "life.run: attempt 2, part 1 of 1, client connected, step 1 is durable"));
	ckptd_fixture_save(&fixture, 2);
	ckptd_fixture_save(&fixture, 3);
	ckptd_client_close(fixture.client);
	fixture.client = NULL;
	assert_int_equal(RUN("finish", "--finish", socket, "--timeout", "20"), 0);
	assert_int_equal(end_of(pid), 0);
	assert_true(says("finish", "") && !says("finish", "step"));
	assert_true(says("log", "step 3 of") && says("log", "GB/s"));
	assert_false(is_there(socket));
	ckptd_fixture_check(&fixture, 2);
	ckptd_fixture_check(&fixture, 3);
	/* Nobody is there any more. */
	assert_int_equal(RUN("finish", "--finish", socket), 0);
	assert_true(says("finish", "nothing to finish"));
	assert_int_equal(RUN("status", "--status", socket), EXIT_LOST);
	ckptd_fixture_end(&fixture);
}

static void what_is_not_finished_in_time_is_said(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = make_folder("time");
	pid_t pid = start_service(socket);
	ckptd_fixture_make(&fixture, files_path("time.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	kill(pid, SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	ckptd_fixture_save(&fixture, 2);
	ckptd_client_close(fixture.client);
	fixture.client = NULL;
	pid_t finish = START("finish", "--finish", socket, "--timeout", "0");
	deadline_sleep(deadline_in(5), 0.2);
	kill(pid, SIGCONT);
	assert_int_equal(end_of(finish), EXIT_LOST);
	assert_true(says("finish", "lost: step 1 of") && says("finish", "lost: step 2 of"));
	end_of(pid);
	assert_false(ckptd_fixture_has(&fixture, 2));
	ckptd_fixture_end(&fixture);
}

/* A save that fails while nobody listens is remembered for who asks at the end. */
static void a_failure_that_nobody_heard_is_said(void **state)
{
	struct ckptd_fixture fixture;
	struct err err;
	const char *socket = make_folder("heard");
	pid_t pid = start_service(socket);
	ckptd_fixture_make(&fixture, files_path("heard.run"), LARGE, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	kill(pid, SIGSTOP);
	ckptd_fixture_save(&fixture, 1);
	ckptd_client_close(fixture.client);
	fixture.client = NULL;
	assert_int_equal(owner_release(&fixture.dir, fixture.token, &err), 0);
	struct owner owner = { .attempt = 3 };
	assert_int_equal(owner_claim(&fixture.dir, &owner, NULL, NULL, 5, &err), 0);
	kill(pid, SIGCONT);
	assert_int_equal(RUN("finish", "--finish", socket, "--timeout", "20"), EXIT_LOST);
	assert_true(says("finish", "step 1 of") && says("finish", "another"));
	end_of(pid);
	ckptd_fixture_end(&fixture);
}

static void a_service_that_does_not_answer_is_killed(void **state)
{
	const char *socket = make_folder("stuck");
	pid_t pid = start_service(socket);
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
	assert_true(is_there(socket));
	assert_int_equal(ckptd_control_finish(socket, 0, &finished, &err), 0);
	pid = start_service(socket);
	assert_int_equal(RUN("finish", "--finish", socket), 0);
	end_of(pid);
}

static void a_dead_node_s_service_is_replaced_by_an_own_one(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = make_folder("dead");
	pid_t pid = start_service(socket);
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

static void it_ends_when_its_job_or_its_folder_is_gone(void **state)
{
	struct ckptd_fixture fixture;
	const char *socket = make_folder("alive");
	char command[500];
	int length = snprintf(command, sizeof command, "#!/bin/sh\n[ \"$*\" = 'of the job' ] && echo >>%s; test -e %s\n", files_path("asked"),
		files_path("job"));
	files_write("job", "", 0);
	files_write("ask", command, (size_t)length);
	assert_int_equal(chmod(files_path("ask"), 0755), 0);
	snprintf(command, sizeof command, "%s of the  job", files_path("ask"));
	pid_t pid = START("log", "--socket", socket, "--allow-root", "--alive", command, "--alive-every", "0.1");
	CKPTD_UNTIL(says("asked", "\n\n\n"));
	ckptd_fixture_make(&fixture, files_path("alive.run"), 0, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	unlink(files_path("job"));
	deadline_sleep(deadline_in(5), 0.5);
	ckptd_fixture_durable(&fixture, 1);
	assert_int_equal(ckptd_client_service(fixture.client), pid);
	ckptd_fixture_end(&fixture);
	assert_int_equal(end_of(pid), 0);
	assert_true(says("log", "the job is gone"));
	assert_false(is_there(socket));
	pid = start_service(socket);
	char moved[600];
	snprintf(moved, sizeof moved, "%s.gone", socket);
	assert_int_equal(rename(socket, moved), 0);
	assert_int_equal(end_of(pid), 0);
	assert_true(is_there(moved));
}

static void it_detaches(void **state)
{
	const char *socket = make_folder("detach");
	struct ckptd_message message;
	struct err err;
	assert_int_equal(RUN("log", "--socket", socket, "--allow-root", "--detach"), 0);
	assert_int_equal(ckptd_control_status(socket, &message, &err), 0);
	pid_t pid = (pid_t)message.state.pid;
	ckptd_message_release(&message);
	assert_int_equal(getsid(pid), pid);
	/* A second one is told why not. */
	assert_int_equal(RUN("log", "--socket", socket, "--allow-root", "--detach"), EXIT_USAGE);
	assert_true(says("log", "another one listens"));
	assert_int_equal(ckptd_control_finish(socket, 5, &message, &err), 1);
	assert_int_equal(message.finished.count, 0);
	ckptd_message_release(&message);
	assert_int_equal(end_of(pid), 0);
}

/* ---- what can't be trusted ---- */

static void folders_and_names_are_looked_at(void **state)
{
	const char *socket = make_folder("real");
	char path[600];
	assert_int_equal(symlink(files_path("real"), files_path("link")), 0);
	snprintf(path, sizeof path, "%s/ckptd.sock", files_path("link"));
	assert_int_equal(RUN("log", "--socket", path, "--allow-root"), EXIT_USAGE);
	assert_true(says("log", "is a link"));
	snprintf(path, sizeof path, "%s/ckptd.sock", files_write("file", "", 0));
	assert_int_equal(RUN("log", "--socket", path, "--allow-root"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--socket", files_path("nowhere/ckptd.sock"), "--allow-root"), EXIT_LOST);
	assert_int_equal(RUN("log", "--socket", files_path("real/"), "--allow-root"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--socket", files_path("real/.."), "--allow-root"), EXIT_USAGE);
	for (mode_t mode = 0701; mode <= 0770; mode += 7) {
		chmod(files_path("real"), mode);
		assert_int_equal(RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
		assert_true(says("log", "chmod 700"));
	}
	chmod(files_path("real"), 0700);
	/* What stands in the socket's place is neither followed nor removed. */
	assert_int_equal(symlink(files_path("target"), socket), 0);
	assert_int_equal(RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
	assert_false(is_there(files_path("target")));
	assert_true(is_there(socket));
	unlink(socket);
	files_write("real/ckptd.sock", "x", 1);
	assert_int_equal(RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
	assert_true(says("log", "no socket") && says("real/ckptd.sock", "x"));
}

static void commands_are_looked_at(void **state)
{
	assert_int_equal(RUN("log", "--client-fd", "17"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--client-fd", "1"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--client-fd", "x"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--socket", "a", "--status", "b"), EXIT_USAGE);
	assert_int_equal(RUN("log", "--finish", "a", "--job", "b"), EXIT_USAGE);
	if (geteuid() == 0) {
		assert_int_equal(RUN("log", "--socket", "/tmp/a"), EXIT_USAGE);
		assert_true(says("log", "--allow-root"));
	}
}

/* In another user's process, which ends with the number of what it could do. */
static int as_another_user(int (*attack)(const char *socket, pid_t service, pid_t trainer), const char *socket, pid_t service)
{
	pid_t trainer = getpid(), pid = fork();
	if (pid == 0) {
		if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
			_exit(100);
		_exit(attack(socket, service, trainer));
	}
	return end_of(pid);
}

static int try_open(pid_t pid, const char *name)
{
	char path[100];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int got = open(path, O_RDONLY);
	if (got >= 0)
		fprintf(stderr, "another user opened %s\n", path);
	return got >= 0;
}

static int attack(const char *path, pid_t service, pid_t trainer)
{
	static char word[8];
	struct iovec to = { word, sizeof word }, from = { word, sizeof word };
	struct err err;
	char name[20];
	pid_t pid;
	int done = ckptd_socket_connect(path, &pid, &err) >= 0;
	for (int fd = 0; fd < 64; fd++) {
		snprintf(name, sizeof name, "fd/%d", fd);
		done += try_open(service, name) + try_open(trainer, name);
	}
	done += try_open(service, "mem") + try_open(trainer, "mem") + try_open(service, "maps") + try_open(service, "environ");
	done += process_vm_readv(trainer, &to, 1, &from, 1, 0) > 0;
	return done + (kill(service, 0) == 0);
}

/* The folder stands open, as if it were not there to hold anybody up: the kernel's word on who connects is left. */
static int attack_openly(const char *path, pid_t service, pid_t trainer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	const struct ckptd_message question = { .type = CKPTD_STATUS };
	struct ckptd_message answer;
	struct ckptd_conn conn;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return 101;
	ckptd_conn_open(&conn, fd);
	ckptd_conn_send(&conn, &question, NULL, 0, NULL);
	return ckptd_conn_await(&conn, &answer, deadline_in(5), NULL) == 1;
}

static void another_user_gets_nowhere(void **state)
{
	struct ckptd_fixture fixture;
	char folder[600];
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *socket = make_folder("user");
	pid_t pid = start_service(socket);
	ckptd_fixture_make(&fixture, files_path("user.run"), 1 << 20, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	chmod(files_dir, 0755);
	ckptd_fixture_durable(&fixture, 1);
	assert_int_equal(as_another_user(attack, socket, pid), 0);
	snprintf(folder, sizeof folder, "%s", files_path("user"));
	chmod(folder, 0777);
	chmod(socket, 0777);
	assert_int_equal(as_another_user(attack_openly, socket, pid), 0);
	CKPTD_UNTIL(says("log", "belongs to user 65534"));
	/* Nor does a client believe in a service that another user has put there. */
	assert_int_equal(chown(folder, OTHER_USER, OTHER_USER), 0);
	struct err err;
	pid_t ignored;
	assert_int_equal(ckptd_socket_connect(socket, &ignored, &err), -1);
	assert_int_equal(chown(folder, 0, 0), 0);
	chmod(folder, 0700);
	ckptd_fixture_durable(&fixture, 2);
	ckptd_fixture_end(&fixture);
	assert_int_equal(RUN("finish", "--finish", socket), 0);
	end_of(pid);
}

/* Root can do all to a user's service but speak with it: what comes from another user is refused, whoever that is. */
static void root_is_another_user_too(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *path = make_folder("root");
	chmod(files_dir, 0755);
	assert_int_equal(chown(files_path("root"), OTHER_USER, OTHER_USER), 0);
	files_write("log", "", 0);
	pid_t pid = fork();
	if (pid == 0) {
		int log = open(files_path("log"), O_WRONLY);
		dup2(log, 2);
		if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
			_exit(100);
		execl(ckptd_program(), "muster-ckptd", "--socket", path, NULL);
		_exit(101);
	}
	int status;
	CKPTD_UNTIL(is_there(path) || waitpid(pid, &status, WNOHANG) == pid);
	if (!is_there(path)) {
		print_message("another user can't execute %s\n", ckptd_program());
		skip();
	}
	pid_t ignored;
	struct err err;
	assert_int_equal(ckptd_socket_connect(path, &ignored, &err), -1);
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct ckptd_conn conn;
	struct ckptd_message answer;
	const struct ckptd_message question = { .type = CKPTD_STATUS };
	CKPTD_UNTIL(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	ckptd_conn_open(&conn, fd);
	ckptd_conn_send(&conn, &question, NULL, 0, NULL);
	assert_int_equal(ckptd_conn_await(&conn, &answer, deadline_in(5), NULL), -1);
	ckptd_conn_close(&conn);
	CKPTD_UNTIL(says("log", "belongs to user 0"));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

/* ---- clients that do what they must not ---- */

static const struct ckptd_message *attach_message(void)
{
	static struct ckptd_tensor tensor = { "w", SAFETENSORS_F32, 1, { 16 }, 0, 0 };
	static const struct ckptd_message message = { .type = CKPTD_ATTACH, .attach = { .token = "0123456789abcdef0123456789abcdef",
		.path = "guest", .world_size = 1, .config = "{}", .numerics = "{}", .model = "{}", .parts = 1, .slots = 1,
		.slot_bytes = 4096, .tensors = &tensor, .tensor_count = 1 } };
	return &message;
}

static int make_memory(size_t size, int seals)
{
	int fd = memfd_create("guest", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* What the service answers to an ATTACH with these descriptors. */
static enum ckptd_type attach(const char *socket, const int *descriptors, int count, struct ckptd_conn *conn, char *text)
{
	struct ckptd_message answer;
	struct err err;
	pid_t pid;
	ckptd_conn_open(conn, ckptd_socket_connect(socket, &pid, &err));
	assert_int_equal(ckptd_conn_send(conn, attach_message(), descriptors, count, &err), 0);
	if (ckptd_conn_await(conn, &answer, deadline_in(5), &err) < 0)
		fail_msg("%s", err.text);
	enum ckptd_type type = answer.type;
	strcpy(text, type == CKPTD_REFUSED ? answer.refused.text : "");
	ckptd_message_release(&answer);
	return type;
}

static void refuses(const char *socket, int dir, int slot, const char *why)
{
	const int descriptors[] = { dir, slot };
	struct ckptd_conn conn;
	char text[1100];
	assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_REFUSED);
	if (!strstr(text, why))
		fail_msg("%s is not: %s", text, why);
	ckptd_conn_close(&conn);
}

static void is_refused(struct ckptd_conn *conn, const char *why)
{
	struct ckptd_message answer;
	struct err err;
	do
		assert_int_equal(ckptd_conn_await(conn, &answer, deadline_in(5), &err), 1);
	while (answer.type == CKPTD_PROGRESS);
	assert_int_equal(answer.type, CKPTD_REFUSED);
	if (!strstr(answer.refused.text, why))
		fail_msg("%s is not: %s", answer.refused.text, why);
	ckptd_message_release(&answer);
	assert_int_equal(ckptd_conn_await(conn, &answer, deadline_in(5), &err), -1);
	ckptd_conn_close(conn);
}

static void clients_that_break_the_rules_are_sent_away(void **state)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const char *socket = make_folder("rules");
	pid_t pid = start_service(socket);
	int good = make_memory(4096, seals), small = make_memory(2048, seals), loose = make_memory(4096, F_SEAL_GROW);
	int dir = open(files_dir, O_RDONLY | O_DIRECTORY), file = open(files_write("plain", "x", 1), O_RDONLY);
	const int descriptors[] = { dir, good, good };
	struct ckptd_conn conn, second;
	char text[1100];
	refuses(socket, file, good, "no directory");
	refuses(socket, dir, small, "2048 bytes");
	refuses(socket, dir, loose, "fixed size");
	refuses(socket, dir, file, "not a memory file");
	assert_int_equal(attach(socket, descriptors, 3, &conn, text), CKPTD_REFUSED);
	ckptd_conn_close(&conn);
	const struct ckptd_message saves[] = {
		{ .type = CKPTD_SAVE, .save = { 1, 1, 0, 0, 0 } }, { .type = CKPTD_SAVE, .save = { -1, 1, 0, 0, 0 } },
		{ .type = CKPTD_STATUS }, { .type = CKPTD_DECIDED, .decided = { 1, true } },
	};
	for (size_t i = 0; i < sizeof saves / sizeof saves[0]; i++) {
		assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_ATTACHED);
		assert_int_equal(ckptd_conn_send(&conn, &saves[i], NULL, 0, NULL), 0);
		is_refused(&conn, i < 2 ? "no slot" : "where SAVE should");
	}
	/* Twice the same part, and a second ATTACH over one connection. */
	assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_ATTACHED);
	assert_int_equal(attach(socket, descriptors, 2, &second, text), CKPTD_REFUSED);
	assert_non_null(strstr(text, "earlier client"));
	ckptd_conn_close(&second);
	assert_int_equal(ckptd_conn_send(&conn, attach_message(), descriptors, 2, NULL), 0);
	is_refused(&conn, "where SAVE should");
	/* No frame at all. */
	pid_t ignored;
	ckptd_conn_open(&conn, ckptd_socket_connect(socket, &ignored, NULL));
	assert_int_equal(write(conn.fd, "GET / HTTP/1.0\r\n\r\n", 18), 18);
	struct ckptd_message answer;
	assert_int_equal(ckptd_conn_await(&conn, &answer, deadline_in(5), NULL), 1);
	assert_int_equal(answer.type, CKPTD_REFUSED);
	ckptd_message_release(&answer);
	ckptd_conn_close(&conn);
	assert_int_equal(RUN("finish", "--finish", socket), 0);
	end_of(pid);
	for (int i = 0; i < 3; i++)
		close((int[]){ good, small, loose }[i]);
	close(dir);
	close(file);
}

/* The same slot twice, while the first is being written. */
static void a_slot_in_flight_is_refused(void **state)
{
	const char *socket = make_folder("flight");
	pid_t pid = start_service(socket);
	int good = make_memory(4096, F_SEAL_SHRINK | F_SEAL_GROW), dir = open(files_dir, O_RDONLY | O_DIRECTORY);
	const int descriptors[] = { dir, good };
	const struct ckptd_message save = { .type = CKPTD_SAVE, .save = { 0, 1, 0, 0, 0 } };
	struct ckptd_conn conn;
	char text[1100];
	assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_ATTACHED);
	kill(pid, SIGSTOP);
	assert_int_equal(ckptd_conn_send(&conn, &save, NULL, 0, NULL), 0);
	assert_int_equal(ckptd_conn_send(&conn, &save, NULL, 0, NULL), 0);
	kill(pid, SIGCONT);
	is_refused(&conn, "handed over before");
	assert_int_equal(RUN("finish", "--finish", socket), EXIT_LOST); /* the guest's token owns no directory */
	end_of(pid);
	close(good);
	close(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_s_service_outlives_its_client_and_finishes),
		cmocka_unit_test(what_is_not_finished_in_time_is_said),
		cmocka_unit_test(a_failure_that_nobody_heard_is_said),
		cmocka_unit_test(a_service_that_does_not_answer_is_killed),
		cmocka_unit_test(a_dead_node_s_service_is_replaced_by_an_own_one),
		cmocka_unit_test(it_ends_when_its_job_or_its_folder_is_gone),
		cmocka_unit_test(it_detaches),
		cmocka_unit_test(folders_and_names_are_looked_at),
		cmocka_unit_test(commands_are_looked_at),
		cmocka_unit_test(another_user_gets_nowhere),
		cmocka_unit_test(root_is_another_user_too),
		cmocka_unit_test(clients_that_break_the_rules_are_sent_away),
		cmocka_unit_test(a_slot_in_flight_is_refused),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
