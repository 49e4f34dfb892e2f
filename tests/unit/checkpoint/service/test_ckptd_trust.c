/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckptd among those that it can't trust: folders and names, other users, clients that break
 * the rules. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
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

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_socket.h"
#include "tests/unit/checkpoint/service/ckptd_node.h"

#define OTHER_USER 65534

static void folders_and_names_are_looked_at(void **state)
{
	const char *socket = ckptd_node_folder("real");
	char path[600];
	assert_int_equal(symlink(files_path("real"), files_path("link")), 0);
	snprintf(path, sizeof path, "%s/ckptd.sock", files_path("link"));
	assert_int_equal(CKPTD_RUN("log", "--socket", path, "--allow-root"), EXIT_USAGE);
	assert_true(ckptd_node_says("log", "is a link"));
	snprintf(path, sizeof path, "%s/ckptd.sock", files_write("file", "", 0));
	assert_int_equal(CKPTD_RUN("log", "--socket", path, "--allow-root"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--socket", files_path("nowhere/ckptd.sock"), "--allow-root"),
		EXIT_LOST);
	assert_int_equal(CKPTD_RUN("log", "--socket", files_path("real/"), "--allow-root"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--socket", files_path("real/.."), "--allow-root"),
		EXIT_USAGE);
	for (mode_t mode = 0701; mode <= 0770; mode += 7) {
		chmod(files_path("real"), mode);
		assert_int_equal(CKPTD_RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
		assert_true(ckptd_node_says("log", "chmod 700"));
	}
	chmod(files_path("real"), 0700);
	/* What stands in the socket's place is neither followed nor removed. */
	assert_int_equal(symlink(files_path("target"), socket), 0);
	assert_int_equal(CKPTD_RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
	assert_false(ckptd_node_has(files_path("target")));
	assert_true(ckptd_node_has(socket));
	unlink(socket);
	files_write("real/ckptd.sock", "x", 1);
	assert_int_equal(CKPTD_RUN("log", "--socket", socket, "--allow-root"), EXIT_USAGE);
	assert_true(ckptd_node_says("log", "no socket") && ckptd_node_says("real/ckptd.sock", "x"));
}

static void commands_are_looked_at(void **state)
{
	assert_int_equal(CKPTD_RUN("log", "--client-fd", "17"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--client-fd", "1"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--client-fd", "x"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--socket", "a", "--status", "b"), EXIT_USAGE);
	assert_int_equal(CKPTD_RUN("log", "--finish", "a", "--job", "b"), EXIT_USAGE);
	if (geteuid() == 0) {
		assert_int_equal(CKPTD_RUN("log", "--socket", "/tmp/a"), EXIT_USAGE);
		assert_true(ckptd_node_says("log", "--allow-root"));
	}
}

/* In another user's process, which ends with the number of what it could do. */
static int as_another_user(int (*attack)(const char *socket, pid_t service, pid_t trainer),
	const char *socket, pid_t service)
{
	pid_t trainer = getpid(), pid = fork();
	if (pid == 0) {
		if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
			_exit(100);
		_exit(attack(socket, service, trainer));
	}
	return ckptd_node_end_of(pid);
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
	done += try_open(service, "mem") + try_open(trainer, "mem") + try_open(service, "maps")
		+ try_open(service, "environ");
	done += process_vm_readv(trainer, &to, 1, &from, 1, 0) > 0;
	return done + (kill(service, 0) == 0);
}

/* The folder stands open, as if it were not there to hold anybody up: the kernel's word on who
 * connects is left. */
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
	return ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), NULL) == 1;
}

static void another_user_gets_nowhere(void **state)
{
	struct ckptd_fixture fixture;
	char folder[600];
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *socket = ckptd_node_folder("user");
	pid_t pid = ckptd_node_service(socket);
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
	CKPTD_UNTIL(ckptd_node_says("log", "belongs to user 65534"));
	/* In a folder of another user the client looks at nothing, but finds its service by the
	 * abstract name. */
	assert_int_equal(chown(folder, OTHER_USER, OTHER_USER), 0);
	struct err err;
	pid_t found;
	int fd = ckptd_socket_connect(socket, &found, &err);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(found, pid);
	assert_int_equal(chown(folder, 0, 0), 0);
	chmod(folder, 0700);
	ckptd_fixture_durable(&fixture, 2);
	ckptd_fixture_end(&fixture);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
}

/* Root can do all to a user's service but speak with it: what comes from another user is refused,
 * also from root. */
static void root_is_another_user_too(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (geteuid() != 0) {
		print_message("only root can be another user\n");
		skip();
	}
	const char *path = ckptd_node_folder("root");
	/* Opened by root: the program may lie in a folder that is closed to others. */
	const int program = open(ckptd_program(), O_RDONLY | O_CLOEXEC);
	chmod(files_dir, 0755);
	assert_int_equal(chown(files_path("root"), OTHER_USER, OTHER_USER), 0);
	files_write("log", "", 0);
	pid_t pid = fork();
	if (pid == 0) {
		int log = open(files_path("log"), O_WRONLY);
		dup2(log, 2);
		if (setgid(OTHER_USER) < 0 || setuid(OTHER_USER) < 0)
			_exit(100);
		fexecve(program, (char *const[]) { "muster-ckptd", "--socket", (char *)path, NULL },
			environ);
		_exit(101);
	}
	close(program);
	int status;
	CKPTD_UNTIL(ckptd_node_has(path) || waitpid(pid, &status, WNOHANG) == pid);
	assert_true(ckptd_node_has(path));
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
	assert_int_equal(ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), &err), -1);
	assert_null(strstr(err.text, "no answer"));
	ckptd_conn_close(&conn);
	CKPTD_UNTIL(ckptd_node_says("log", "belongs to user 0"));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

/* ---- clients that do what they must not ---- */

static const struct ckptd_message *attach_message(void)
{
	static const struct ckptd_message message = { .type = CKPTD_ATTACH,
		.attach = { .token = "0123456789abcdef0123456789abcdef",
			.path = "guest",
			.world_size = 1,
			.parts = 1,
			.buffers = 1,
			.buffer_bytes = 4096 } };
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
static enum ckptd_type attach(const char *socket, const int *descriptors, int count,
	struct ckptd_conn *conn, char *text)
{
	struct ckptd_message answer;
	struct err err;
	pid_t pid;
	ckptd_conn_open(conn, ckptd_socket_connect(socket, &pid, &err));
	assert_int_equal(ckptd_conn_send(conn, attach_message(), descriptors, count, &err), 0);
	if (ckptd_conn_await(conn, &answer, deadline_in(HANG_SECONDS), &err) < 0)
		fail_msg("%s", err.text);
	enum ckptd_type type = answer.type;
	strcpy(text, type == CKPTD_REFUSED ? answer.refused.text : "");
	ckptd_message_release(&answer);
	return type;
}

static void refuses(const char *socket, int dir, int buffer, const char *why)
{
	const int descriptors[] = { dir, buffer };
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
		assert_int_equal(ckptd_conn_await(conn, &answer, deadline_in(HANG_SECONDS), &err), 1);
	while (answer.type == CKPTD_PROGRESS);
	assert_int_equal(answer.type, CKPTD_REFUSED);
	if (!strstr(answer.refused.text, why))
		fail_msg("%s is not: %s", answer.refused.text, why);
	ckptd_message_release(&answer);
	assert_int_equal(ckptd_conn_await(conn, &answer, deadline_in(HANG_SECONDS), &err), -1);
	assert_null(strstr(err.text, "no answer"));
	ckptd_conn_close(conn);
}

static void clients_that_break_the_rules_are_sent_away(void **state)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
	const char *socket = ckptd_node_folder("rules");
	pid_t pid = ckptd_node_service(socket);
	int good = make_memory(4096, seals), small = make_memory(2048, seals),
		loose = make_memory(4096, F_SEAL_GROW);
	int dir = open(files_dir, O_RDONLY | O_DIRECTORY),
		file = open(files_write("plain", "x", 1), O_RDONLY);
	const int descriptors[] = { dir, good, good };
	struct ckptd_conn conn, second;
	char text[1100];
	refuses(socket, file, good, "no directory");
	refuses(socket, dir, small, "2048 bytes");
	refuses(socket, dir, loose, "fixed size");
	refuses(socket, dir, file, "not a memory file");
	assert_int_equal(attach(socket, descriptors, 3, &conn, text), CKPTD_REFUSED);
	ckptd_conn_close(&conn);
	struct ckptd_tensor outside = { .name = "w",
		.dtype = SAFETENSORS_F32,
		.dims = 1,
		.shape = { 16 },
		.offset = 4096,
		.box_dims = CKPTD_NO_SHAPE,
		.box_offset_dims = CKPTD_NO_SHAPE };
	const struct ckptd_message saves[] = {
		{ .type = CKPTD_SAVE, .save = { .buffer = 1 } },
		{ .type = CKPTD_SAVE, .save = { .buffer = -1 } },
		{ .type = CKPTD_SAVE,
			.save = { .config = "{}", .numerics = "{}", .tensors = &outside, .tensor_count = 1 } },
		{ .type = CKPTD_STATUS },
		{ .type = CKPTD_DECIDED, .decided = { 1, true } },
	};
	static const char *const reasons[] = { "no buffer", "no buffer", "tensors[0] (w): it is not in",
		"where SAVE should", "where SAVE should" };
	for (size_t i = 0; i < sizeof saves / sizeof saves[0]; i++) {
		assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_ATTACHED);
		assert_int_equal(ckptd_conn_send(&conn, &saves[i], NULL, 0, NULL), 0);
		is_refused(&conn, reasons[i]);
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
	assert_int_equal(ckptd_conn_await(&conn, &answer, deadline_in(HANG_SECONDS), NULL), 1);
	assert_int_equal(answer.type, CKPTD_REFUSED);
	ckptd_message_release(&answer);
	ckptd_conn_close(&conn);
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
	for (int i = 0; i < 3; i++)
		close((int[]) { good, small, loose }[i]);
	close(dir);
	close(file);
}

/* The same buffer twice, while the first is being written. */
static void a_buffer_in_flight_is_refused(void **state)
{
	const char *socket = ckptd_node_folder("flight");
	pid_t pid = ckptd_node_service(socket);
	int good = make_memory(4096, F_SEAL_SHRINK | F_SEAL_GROW),
		dir = open(files_dir, O_RDONLY | O_DIRECTORY);
	const int descriptors[] = { dir, good };
	const struct ckptd_message save = { .type = CKPTD_SAVE,
		.save = { .at.step = 1, .config = "{}", .numerics = "{}" } };
	struct ckptd_conn conn;
	char text[1100];
	assert_int_equal(attach(socket, descriptors, 2, &conn, text), CKPTD_ATTACHED);
	kill(pid, SIGSTOP);
	assert_int_equal(ckptd_conn_send(&conn, &save, NULL, 0, NULL), 0);
	assert_int_equal(ckptd_conn_send(&conn, &save, NULL, 0, NULL), 0);
	kill(pid, SIGCONT);
	is_refused(&conn, "handed over before");
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket),
		EXIT_LOST); /* the guest's token owns no directory */
	ckptd_node_end_of(pid);
	close(good);
	close(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(folders_and_names_are_looked_at),
		cmocka_unit_test(commands_are_looked_at),
		cmocka_unit_test(another_user_gets_nowhere),
		cmocka_unit_test(root_is_another_user_too),
		cmocka_unit_test(clients_that_break_the_rules_are_sent_away),
		cmocka_unit_test(a_buffer_in_flight_is_refused),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
