/* SPDX-License-Identifier: Apache-2.0 */
/* acceptor, and how many descriptors there are for what it takes. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/acceptor.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/listen.h"
#include "tests/unit/hang.h"

static struct acceptor acceptor;
static int port, held[3];

static int call(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static rlim_t set_limit(rlim_t files)
{
	struct rlimit old;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { files, old.rlim_max }), 0);
	return old.rlim_cur;
}

static int set_up(void **state)
{
	acceptor = (struct acceptor) { .fd = listen_any(0, &port) };
	assert_true(acceptor.fd >= 0);
	return fcntl(acceptor.fd, F_SETFL, O_NONBLOCK);
}

static int tear_down(void **state)
{
	return close(acceptor.fd);
}

static void what_waits_is_taken_in_turn(void **state)
{
	double seconds = INFINITY;
	assert_int_equal(acceptor_take(&acceptor, NULL, NULL), -1);
	assert_int_equal(acceptor_poll(&acceptor, &seconds), acceptor.fd);
	assert_true(isinf(seconds));
	for (const char *word = "ab"; *word; word++) {
		int caller = call();
		assert_int_equal(send(caller, word, 1, 0), 1);
		close(caller);
	}
	for (const char *word = "ab"; *word; word++) {
		char heard;
		int fd = acceptor_take(&acceptor, NULL, NULL);
		assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
		assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
		assert_int_equal(recv(fd, &heard, 1, 0), 1);
		assert_int_equal(heard, *word);
		close(fd);
	}
	const struct acceptor none = { .fd = -1 };
	assert_int_equal(acceptor_take(&(struct acceptor) { .fd = -1 }, NULL, NULL), -1);
	assert_int_equal(acceptor_poll(&none, &seconds), -1);
	assert_true(isinf(seconds));
}

static void without_a_descriptor_it_rests(void **state)
{
	struct deadline deadline = deadline_in(HANG_SECONDS);
	double seconds = 60;
	int fd, caller = call();
	rlim_t old = set_limit(3);
	/* This process may be stopped for longer than it rests. */
	do
		assert_int_equal(acceptor_take(&acceptor, NULL, NULL), -1);
	while (acceptor_poll(&acceptor, &seconds) >= 0 && !deadline_passed(deadline));
	assert_true(seconds > 0 && seconds <= 0.1);
	set_limit(old);
	/* The connection is there still, and is taken when the rest is over. */
	while ((fd = acceptor_take(&acceptor, NULL, NULL)) < 0)
		assert_true(deadline_sleep(deadline, seconds));
	assert_int_equal(acceptor_poll(&acceptor, &seconds), acceptor.fd);
	close(fd);
	close(caller);
}

static bool close_one(void *arg)
{
	int *left = arg;
	if (*left == 0)
		return false;
	close(held[--*left]);
	return true;
}

static void room_is_made_where_it_can_be(void **state)
{
	int left = 0, callers[3], taken[3];
	for (; left < 2; left++)
		held[left] = dup(acceptor.fd);
	for (int i = 0; i < 3; i++)
		callers[i] = call();
	rlim_t old = set_limit((rlim_t)held[1] + 1);
	for (int i = 0; i < 3; i++)
		taken[i] = acceptor_take(&acceptor, close_one, &left);
	set_limit(old);
	assert_true(taken[0] >= 0 && taken[1] >= 0);
	assert_int_equal(taken[2], -1);
	assert_int_equal(left, 0);
	for (int i = 0; i < 3; i++) {
		close(callers[i]);
		close(taken[i]);
	}
}

static void the_limit_is_raised(void **state)
{
	struct rlimit limit;
	rlim_t old = set_limit(100);
	assert_int_equal(descriptors_for_connections(), 75);
	descriptors_raise();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(limit.rlim_cur, limit.rlim_max);
	set_limit(old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_waits_is_taken_in_turn, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_a_descriptor_it_rests, set_up, tear_down),
		cmocka_unit_test_setup_teardown(room_is_made_where_it_can_be, set_up, tear_down),
		cmocka_unit_test(the_limit_is_raised),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
