/* SPDX-License-Identifier: Apache-2.0 */
/* A message that is in order by itself and comes out of its place: who hears it says which one came
 * and what should have, and goes on without the other. LEFT stands for all such messages here. */
#include "config.h"

#include <netinet/in.h>
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
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/protocol/ckptd_conn.h"
#include "checkpoint/protocol/ckptd_socket.h"
#include "checkpoint/protocol/ckptd_tcp.h"
#include "common/listen.h"
#include "tests/unit/checkpoint/service/ckptd_node.h"

static const struct ckptd_message misplaced = { .type = CKPTD_LEFT, .decided.step = 1 };

static void send_misplaced(struct ckptd_conn *conn)
{
	assert_int_equal(ckptd_conn_send(conn, &misplaced, NULL, 0, NULL), 0);
}

/* The other end refuses, with this reason, and closes. */
static void is_refused(struct ckptd_conn *conn, const char *why)
{
	struct ckptd_message answer;
	struct err err;
	if (ckptd_conn_await(conn, &answer, deadline_in(HANG_SECONDS), &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(answer.type, CKPTD_REFUSED);
	if (!strstr(answer.refused.text, why))
		fail_msg("%s is not: %s", answer.refused.text, why);
	ckptd_message_release(&answer);
	assert_int_equal(ckptd_conn_await(conn, &answer, deadline_in(HANG_SECONDS), &err), -1);
	ckptd_conn_close(conn);
}

/* ---- said to a service ---- */

static void a_service_says_what_should_have_come(void **state)
{
	const char *socket = ckptd_node_folder("visitor");
	pid_t ignored, pid = ckptd_node_service(socket);
	struct ckptd_conn conn;
	ckptd_conn_open(&conn, ckptd_socket_connect(socket, &ignored, NULL));
	send_misplaced(&conn);
	is_refused(&conn, "LEFT came where ATTACH, STATUS or FINISH should");
	assert_int_equal(CKPTD_RUN("finish", "--finish", socket), 0);
	ckptd_node_end_of(pid);
	assert_true(ckptd_node_says("log", "a connection is refused: protocol: LEFT came"));
}

/* A connection to part 0's service that begins with this HELLO. */
static struct ckptd_conn greet(struct ckptd_fixture *part0, const char *secret, const char *token,
	int64_t parts)
{
	struct ckptd_address address;
	struct sockaddr_storage to;
	struct ckptd_conn conn;
	socklen_t size;
	assert_int_equal(ckptd_address_parse(ckptd_client_address(part0->client), &address, NULL), 0);
	assert_int_equal(ckptd_tcp_address(address.host, address.port, &to, &size, NULL), 0);
	int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, size), 0);
	const struct ckptd_message hello = { .type = CKPTD_HELLO,
		.hello = { secret ? secret : address.secret, token, 1, parts } };
	ckptd_conn_open(&conn, fd);
	assert_int_equal(ckptd_conn_send(&conn, &hello, NULL, 0, NULL), 0);
	return conn;
}

static void part_0_hears_parts_of_its_attempt_alone(void **state)
{
	static const char other[] = "0123456789abcdef0123456789abcdef";
	struct ckptd_fixture a;
	ckptd_fixture_make(&a, files_path("ear"), 0, 0, 2, NULL);
	ckptd_fixture_open(&a);
	struct ckptd_conn conn = greet(&a, other, a.token, 2);
	is_refused(&conn, "has to say the secret first");
	conn = greet(&a, NULL, other, 2);
	is_refused(&conn, "part 2 of 2 is not of this attempt's saves of 2 parts");
	conn = greet(&a, NULL, a.token, 3);
	is_refused(&conn, "part 2 of 3 is not of this attempt's saves of 2 parts");
	conn = greet(&a, NULL, a.token, 2);
	const struct ckptd_message question = { .type = CKPTD_STATUS };
	assert_int_equal(ckptd_conn_send(&conn, &question, NULL, 0, NULL), 0);
	is_refused(&conn, "STATUS came where PART or LEFT should");
	ckptd_fixture_end(&a);
}

/* ---- said by a service ---- */

/* A process that answers the first message of its connections like this, in turn: ATTACHED and
 * LEFT, ATTACHED and LEFT, and LEFT alone from then on. */
static _Noreturn void be_confused(const char *socket, int ready)
{
	const struct ckptd_message attached = { .type = CKPTD_ATTACHED, .attached.pid = getpid() };
	struct ckptd_socket listening;
	struct ckptd_message question;
	struct ckptd_conn conn;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ckptd_socket_listen(&listening, socket, NULL) < 0 || write(ready, "r", 1) != 1)
		_exit(1);
	for (int i = 0;; i++) {
		int fd;
		while ((fd = accept(listening.fd, NULL, NULL)) < 0)
			usleep(1000);
		ckptd_conn_open(&conn, fd);
		if (ckptd_conn_await(&conn, &question, deadline_in(HANG_SECONDS), NULL) < 0)
			_exit(1);
		ckptd_message_release(&question);
		if (i < 2)
			ckptd_conn_send(&conn, &attached, NULL, 0, NULL);
		ckptd_conn_send(&conn, &misplaced, NULL, 0, NULL);
	}
}

static pid_t confused_service(const char *socket)
{
	char word;
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0)
		be_confused(socket, ends[1]);
	close(ends[1]);
	assert_int_equal(read(ends[0], &word, 1), 1);
	close(ends[0]);
	return pid;
}

/* It is left, and as long as it lives no other one writes; then one of the client's own does. */
static void a_client_leaves_a_confused_service(void **state)
{
	const char *socket = ckptd_node_folder("confused");
	pid_t pid = confused_service(socket);
	struct ckptd_fixture fixture;
	ckptd_fixture_make(&fixture, files_path("confused.run"), 0, 0, 1, NULL);
	fixture.plan.socket = socket;
	ckptd_fixture_open(&fixture);
	assert_non_null(strstr(ckptd_fixture_await(&fixture, CKPTD_RESTARTED, -1),
		"protocol: LEFT came to a client"));
	assert_non_null(strstr(ckptd_fixture_await(&fixture, CKPTD_GONE, -1),
		"protocol: LEFT came where ATTACHED should"));
	assert_int_equal(CKPTD_RUN("status", "--status", socket), EXIT_DATA);
	assert_true(ckptd_node_says("status", "protocol: LEFT came as an answer"));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	ckptd_fixture_durable(&fixture, 1);
	ckptd_fixture_check(&fixture, 1);
	ckptd_fixture_end(&fixture);
}

/* ---- said by part 0's service ---- */

/* Takes HELLO and PART from one that connects, and answers with the message. */
static void answer_part(int listener, const struct ckptd_message *answer)
{
	struct ckptd_message message;
	struct ckptd_conn conn;
	ckptd_conn_open(&conn, accept(listener, NULL, NULL));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ckptd_conn_await(&conn, &message, deadline_in(HANG_SECONDS), NULL), 1);
		assert_int_equal(message.type, i == 0 ? CKPTD_HELLO : CKPTD_PART);
		ckptd_message_release(&message);
	}
	assert_int_equal(ckptd_conn_send(&conn, answer, NULL, 0, NULL), 0);
	/* Until the other side has gone. */
	assert_int_equal(ckptd_conn_await(&conn, &message, deadline_in(HANG_SECONDS), NULL), -1);
	ckptd_conn_close(&conn);
}

static bool status_says(const char *socket, const char *text)
{
	assert_int_equal(CKPTD_RUN("status", "--status", socket), 0);
	return ckptd_node_says("status", text);
}

static void a_part_tells_why_part_0_took_no_word_of_it(void **state)
{
	const struct ckptd_message refused = { .type = CKPTD_REFUSED,
		.refused = { EXIT_DATA, "it is too late" } };
	const char *socket = ckptd_node_folder("report");
	pid_t pid = ckptd_node_service(socket);
	struct ckptd_fixture a, b;
	char first[100];
	int port, listener = listen_any(0, &port);
	ckptd_fixture_make(&a, files_path("report.run"), 0, 0, 2, NULL);
	ckptd_fixture_make(&b, files_path("report.run"), 0, 1, 2, a.token);
	snprintf(first, sizeof first, "127.0.0.1:%d:%s", port, a.token);
	b.plan.first = first;
	b.plan.socket = socket;
	ckptd_fixture_open(&b);
	ckptd_fixture_save(&b, 1);
	answer_part(listener, &misplaced);
	CKPTD_UNTIL(status_says(socket, "LEFT came where PART_TAKEN or DECIDED should"));
	answer_part(listener, &refused);
	CKPTD_UNTIL(status_says(socket, "took no word of it: refused: it is too late"));
	close(listener);
	ckptd_fixture_end(&a);
	ckptd_fixture_end(&b);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_service_says_what_should_have_come),
		cmocka_unit_test(part_0_hears_parts_of_its_attempt_alone),
		cmocka_unit_test(a_client_leaves_a_confused_service),
		cmocka_unit_test(a_part_tells_why_part_0_took_no_word_of_it),
	};
	unsetenv("MUSTER_CKPTD");
	ckptd_program();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
