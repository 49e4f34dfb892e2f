/* SPDX-License-Identifier: Apache-2.0 */
/* end_channel: messages are taken in the order in which they came; what strangers send, or don't,
 * changes nothing. Each test runs a second time with calls on sockets that do as little at once as
 * they may. */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/listen.h"
#include "plugin/end_channel.h"
#include "tests/tools/partial_io.h"
#include "tests/unit/hang.h"

#define EXITED(code) ((code) << 8)

static struct end_channel channel;
static struct end_address address;
static bool partial;

static void collect(struct end_channel *from, double seconds, struct first_end *end)
{
	partial_io_here = partial;
	end_channel_collect(from, seconds, end);
	partial_io_here = false;
}

static int say(const char *message, size_t size)
{
	partial_io_here = partial;
	int rc = end_channel_tell(&address, geteuid(), message, size, 20);
	partial_io_here = false;
	return rc;
}

static int begin(void **state)
{
	partial = *state;
	char value[END_CHANNEL_VALUE_SIZE];
	struct err err;
	return end_channel_open(&channel, NULL, value, &err) < 0
		|| !end_address_read("127.0.0.1", value, &address);
}

static size_t write_end(int rank, int wait_status, char message[END_MESSAGE_MAX])
{
	const struct task_report report = { rank, 8, wait_status, "n1", "", 0 };
	return end_write_report(address.secret, &report, message);
}

static void tell(int rank, int wait_status)
{
	char message[END_MESSAGE_MAX];
	size_t size = write_end(rank, wait_status, message);
	assert_int_equal(say(message, size), 0);
}

static void tell_running(void)
{
	char message[END_MESSAGE_MAX];
	assert_int_equal(say(message, end_write_running(address.secret, message)), 0);
}

/* A connection of somebody else's, which stays open. */
static int visit(const void *bytes, size_t size)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), port;
	sscanf(address.port, "%d", &port);
	to.sin_port = htons((uint16_t)port);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
	return fd;
}

static void the_order_of_arrival_is_kept(void **state)
{
	struct first_end end = { 0 };
	for (int rank = 7; rank > 0; rank--)
		tell(rank, SIGKILL);
	collect(&channel, HANG_SECONDS, &end);
	assert_true(end.found);
	assert_int_equal(end.first.rank, 7);
	assert_false(end.running);
	assert_int_equal(channel.fd, -1);
}

static void more_than_a_batch_is_taken(void **state)
{
	struct first_end end = { 0 };
	for (int rank = 0; rank < 100; rank++)
		tell(rank % 8, SIGTERM);
	tell(3, EXITED(1));
	tell_running();
	collect(&channel, HANG_SECONDS, &end);
	assert_int_equal(end.first.rank, 3);
	assert_true(end.running);
}

static void strangers_change_nothing(void **state)
{
	static char noise[100000];
	struct first_end end = { 0 };
	int open[320], n = 0;
	double began = clock_now();
	memset(noise, 'a', sizeof noise);
	for (int i = 0; i < 300; i++)
		open[n++] = visit("", 0); /* says nothing, and stays */
	open[n++] = visit(noise, sizeof noise);
	open[n++] = visit("muster-end 2 ", 13);
	open[n++] = visit("GET / HTTP/1.0\r\n\r\n", 18);
	open[n++] = visit("muster-end 1 00000000000000000000000000000000 end 1 8 9 n9 \n", 60);
	open[n++] = visit("muster-end 1 00000000000000000000000000000000 running\n", 54);
	tell(5, EXITED(1));
	collect(&channel, HANG_SECONDS, &end);
	assert_int_equal(end.first.rank, 5);
	assert_string_equal(end.first.node, "n1");
	assert_false(end.running);
	assert_true(clock_now() - began < 30); /* one after the other: a minute */
	while (n > 0)
		close(open[--n]);
}

/* What a rank says, with pauses in which a silent one is given up. */
struct slow_end {
	int fd;
	size_t size, said;
	char message[END_MESSAGE_MAX];
};

static void *go_on(void *arg)
{
	struct slow_end *slow = arg;
	ssize_t sent = 0;
	for (; slow->said < slow->size && sent >= 0; slow->said += sent > 0 ? (size_t)sent : 0) {
		size_t left = slow->size - slow->said;
		usleep(500000);
		sent = send(slow->fd, slow->message + slow->said, left < 20 ? left : 20, MSG_NOSIGNAL);
	}
	return NULL;
}

static void who_has_begun_is_heard_out(void **state)
{
	struct slow_end slow = { .said = 5 };
	struct first_end end = { 0 };
	pthread_t thread;
	int silent = visit("", 0);
	double began = clock_now();
	slow.size = write_end(6, EXITED(1), slow.message);
	slow.fd = visit(slow.message, slow.said);
	tell(3, EXITED(2));
	assert_int_equal(pthread_create(&thread, NULL, go_on, &slow), 0);
	collect(&channel, HANG_SECONDS, &end);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(end.first.rank, 6);
	assert_int_equal(end.own, 2);
	/* Nobody has waited for the silent one. */
	assert_true(clock_now() - began < HANG_SECONDS / 2.0);
	close(silent);
	close(slow.fd);
}

/* Who says no more keeps nobody from being heard, not even those of another batch. */
static void who_never_ends_is_given_up(void **state)
{
	struct first_end end = { 0 };
	int half = visit("muster-end 1 ", 13);
	for (int i = 0; i < END_VISITORS; i++)
		tell(i % 8, SIGTERM);
	tell(3, EXITED(1));
	collect(&channel, HANG_SECONDS / 20.0, &end);
	assert_int_equal(end.first.rank, 3);
	close(half);
}

static void nobody_waits_for_an_srun_that_is_gone(void **state)
{
	struct first_end end = { 0 };
	double began = clock_now();
	collect(&channel, HANG_SECONDS, &end);
	assert_false(end.found);
	assert_int_equal(say("x", 1), -1);
	assert_true(clock_now() - began < HANG_SECONDS / 2.0);
	strcpy(address.host, "no.number.example");
	assert_int_equal(say("x", 1), -1);
	collect(&channel, 1, &end); /* closed: nothing to do */
}

/* The port that a channel within `range` has; 0: none, and nobody is told there. */
static int port_within(const uint16_t *range)
{
	char value[END_CHANNEL_VALUE_SIZE];
	struct end_channel ours;
	struct err err;
	int got;
	assert_int_equal(end_channel_open(&ours, range, value, &err), 0);
	assert_true(end_address_read("127.0.0.1", value, &address));
	assert_string_equal(address.secret, ours.secret);
	sscanf(address.port, "%d", &got);
	assert_int_equal(ours.fd < 0, got == 0);
	assert_int_equal(say("x", 1), got ? 0 : -1);
	close(ours.fd);
	return got;
}

static void a_port_of_the_site_is_taken(void **state)
{
	int port;
	sscanf(address.port, "%d", &port);
	const uint16_t range[] = { (uint16_t)port, (uint16_t)(port + 200) };
	assert_in_range(port_within(range), port + 1, port + 200);
	assert_true(port_within(NULL) > 0);
	close(channel.fd);
}

static void few_ports_of_the_site_are_left_to_srun(void **state)
{
	int port, got, listening[150], n = 0;
	sscanf(address.port, "%d", &port);
	for (int size = 1; size <= 64; size *= 2)
		assert_int_equal(port_within((uint16_t[]) { (uint16_t)port, (uint16_t)(port + size - 1) }),
			0);
	const uint16_t range[] = { (uint16_t)port, (uint16_t)(port + 250) };
	for (int i = 1; i <= 250 && n < 130; i++) {
		listening[n] = listen_any(port + i, &got);
		n += listening[n] >= 0;
	}
	assert_int_equal(n, 130);
	assert_int_equal(port_within(range), 0);
	for (int i = 0; i < 70; i++)
		close(listening[--n]);
	assert_true(port_within(range) > 0);
	while (n > 0)
		close(listening[--n]);
	close(channel.fd);
}

static void addresses_are_checked(void **state)
{
	static const char *const bad[] = { "", ":", "1", "1:", ":0123456789abcdef0123456789abcdef",
		"-1:0123456789abcdef0123456789abcdef", "65536:0123456789abcdef0123456789abcdef",
		"1:0123456789abcdef0123456789abcde", "1:0123456789abcdef0123456789abcdef0",
		"1:0123456789abcdeX0123456789abcdef", "1x:0123456789abcdef0123456789abcdef",
		"11111111111111:0123456789abcdef0123456789abcdef" };
	struct end_address read;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_false(end_address_read("127.0.0.1", bad[i], &read));
	assert_false(end_address_read(NULL, "1:0123456789abcdef0123456789abcdef", &read));
	assert_false(end_address_read("127.0.0.1", NULL, &read));
	assert_true(end_address_read("127.0.0.1", "1:0123456789abcdef0123456789abcdef", &read));
	assert_string_equal(read.port, "1");
}

#define TEST(name) \
	cmocka_unit_test_setup(name, begin), \
	{ \
#name " in parts", name, begin, NULL, &partial \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_order_of_arrival_is_kept),
		TEST(more_than_a_batch_is_taken),
		TEST(strangers_change_nothing),
		TEST(who_has_begun_is_heard_out),
		cmocka_unit_test_setup(who_never_ends_is_given_up, begin),
		TEST(nobody_waits_for_an_srun_that_is_gone),
		TEST(a_port_of_the_site_is_taken),
		TEST(few_ports_of_the_site_are_left_to_srun),
		cmocka_unit_test(addresses_are_checked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
