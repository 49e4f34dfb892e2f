/* SPDX-License-Identifier: Apache-2.0 */
/* A session of the service whose client dies: what is in the socket was handed over, whatever can't
 * be told any more. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "checkpoint/client/ckptd_contact.h"
#include "checkpoint/service/ckptd_session.h"
#include "common/clock.h"
#include "tests/unit/checkpoint/service/ckptd_fixture.h"
#include "tests/unit/files.h"

static void lost(void *arg, const char *line)
{
	fail_msg("%s", line);
}

struct pair {
	struct ckptd_fixture fixture;
	struct ckptd_contact contact;
	struct ckptd_conn client;
	struct ckptd_service service;
	struct ckptd_session *session;
};

static void attach(struct pair *pair, const char *path)
{
	struct ckptd_conn conn;
	struct ckptd_message message;
	struct err err;
	int fds[2];
	/* Room for few answers. */
	const int least = 1;
	ckptd_fixture_make(&pair->fixture, files_path(path), 0, 0, 1, NULL);
	assert_int_equal(ckptd_contact_init(&pair->contact, &pair->fixture.plan, &err), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least), 0);
	ckptd_conn_open(&pair->client, fds[0]);
	ckptd_conn_open(&conn, fds[1]);
	const int descriptors[] = { pair->fixture.dir.fd, pair->fixture.memory.fd[0],
		pair->fixture.memory.fd[1] };
	assert_int_equal(ckptd_conn_send(&pair->client, &pair->contact.attach, descriptors, 3, &err),
		0);
	assert_int_equal(ckptd_conn_receive(&conn, &message, &err), 1);
	pair->service = (struct ckptd_service) { .patience = 5,
		.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
		.lost = lost };
	pair->session = ckptd_session_open(&pair->service, &conn, &message, &err);
	if (!pair->session)
		fail_msg("%s", err.text);
}

/* Hands the state after `step` steps over. */
static void save(struct pair *pair, int buffer, int64_t step)
{
	struct ckptd_message message = { .type = CKPTD_SAVE };
	struct err err;
	ckpt_sample_fill(pair->fixture.memory.base[buffer], step);
	const struct snapshot snapshot = ckptd_fixture_describe(&pair->fixture, buffer, step);
	assert_int_equal(ckptd_save_describe(&message.save, &snapshot, &pair->fixture.memory, buffer,
						 &err),
		0);
	assert_int_equal(ckptd_conn_send(&pair->client, &message, NULL, 0, &err), 0);
	ckptd_message_release(&message);
	assert_null(pair->client.first);
}

static void step_until_idle(struct pair *pair)
{
	do
		ckptd_session_step(pair->session);
	while (ckptd_session_busy(pair->session) && usleep(1000) == 0);
	ckptd_session_step(pair->session);
}

static bool has_answers_left(const struct pair *pair)
{
	struct ckptd_polls polls = { .count = 0 };
	bool left = false;
	ckptd_session_poll(pair->session, &polls);
	for (nfds_t i = 0; i < polls.count; i++)
		left |= (polls.fds[i].events & POLLOUT) != 0;
	free(polls.fds);
	return left;
}

static void end(struct pair *pair)
{
	assert_false(ckptd_session_connected(pair->session));
	ckptd_session_close(pair->session);
	close(pair->service.wake);
	ckptd_contact_release(&pair->contact);
	ckptd_fixture_end(&pair->fixture);
}

static void answers_that_wait_for_a_dead_client(void **state)
{
	static struct pair pair;
	int64_t step = 0;
	attach(&pair, "answers");
	while (!has_answers_left(&pair)) {
		assert_true(step < 200);
		save(&pair, 0, ++step);
		step_until_idle(&pair);
	}
	save(&pair, 0, step + 1);
	save(&pair, 1, step + 2);
	ckptd_conn_close(&pair.client);
	step_until_idle(&pair);
	ckptd_fixture_check(&pair.fixture, step + 1);
	ckptd_fixture_check(&pair.fixture, step + 2);
	end(&pair);
}

static void a_client_that_dies_with_answers_unread(void **state)
{
	static struct pair pair;
	attach(&pair, "unread");
	save(&pair, 0, 1);
	step_until_idle(&pair);
	save(&pair, 0, 2);
	save(&pair, 1, 3);
	ckptd_conn_close(&pair.client);
	step_until_idle(&pair);
	ckptd_fixture_check(&pair.fixture, 2);
	ckptd_fixture_check(&pair.fixture, 3);
	end(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_that_wait_for_a_dead_client),
		cmocka_unit_test(a_client_that_dies_with_answers_unread),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
