/* SPDX-License-Identifier: Apache-2.0 */
/* rank_links: ranks of one process that connect over loopback, and strangers. Each test runs a
 * second time with calls on sockets that do as little at once as they may: loopback's handshake
 * ends inside connect(), a network's does not. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/siphash.h"
#include "launch/rank_links.h"
#include "launch/run_key.h"
#include "tests/tools/partial_io.h"
#include "tests/unit/hang.h"

#define WORLD_MAX 17
#define HELLO RANK_LINKS_HELLO
#define SILENT 70 /* more than a rank keeps */

static bool partial; /* whether calls of the ranks on sockets do little at once */

struct world {
	int size;
	struct rank_links *ranks[WORLD_MAX];
};

static void set_up(struct world *world, int size, const char *even, const char *odd)
{
	struct err err;
	*world = (struct world) { .size = size };
	for (int rank = 0; rank < size; rank++) {
		world->ranks[rank] = rank_links_open(rank, size, rank % 2 ? odd : even, &err);
		if (!world->ranks[rank])
			fail_msg("%s", err.text);
	}
	for (int rank = 0; rank < size; rank++)
		for (int peer = 0; peer < size; peer++)
			assert_int_equal(rank_links_find(world->ranks[rank], peer,
								 rank_links_place(world->ranks[peer])),
				0);
}

static void set_up_four(struct world *world)
{
	set_up(world, 4, "127.0.0.2", "127.0.0.1");
}

static void tear_down(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++)
		rank_links_close(world->ranks[rank]);
}

/* Accepts as the provider's thread does, until a peer has come, the other end of `stranger` has
 * been closed (-1: there is none) or the time is up. */
static int await_end(struct rank_links *links, double seconds, int *peer, int stranger)
{
	struct deadline end = deadline_in(seconds);
	int fd = -1;
	partial_io_here = partial;
	while (fd < 0 && !deadline_passed(end)) {
		double wait = deadline_left(end);
		struct pollfd ready[] = { { .fd = rank_links_poll(links, &wait), .events = POLLIN },
			{ .fd = stranger, .events = POLLIN } };
		if (poll(ready, 2, (int)(wait * 1000) + 1) > 0 && ready[0].revents)
			fd = rank_links_accept(links, peer);
		if (ready[1].revents)
			break;
	}
	partial_io_here = false;
	return fd;
}

static int await_peer(struct rank_links *links, double seconds, int *peer)
{
	return await_end(links, seconds, peer, -1);
}

/* Whether the kernel asks the other end when that one is silent. */
static bool asks(int fd)
{
	int on = 0;
	socklen_t size = sizeof on;
	return getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, &size) == 0 && on;
}

/* Connects a rank with a lower one: the descriptors of both ends. */
static void join(struct world *world, int from, int to, int ends[2])
{
	unsigned char hello[HELLO];
	int peer = -1;
	partial_io_here = partial;
	ends[0] = rank_links_connect(world->ranks[from], to, hello);
	assert_true(ends[0] >= 0);
	struct pollfd ready = { .fd = ends[0], .events = POLLOUT };
	assert_int_equal(poll(&ready, 1, HANG_SECONDS * 1000), 1);
	for (size_t at = 0; at < HELLO;) {
		ssize_t sent = send(ends[0], hello + at, HELLO - at, 0);
		at += sent > 0 ? (size_t)sent : 0;
	}
	partial_io_here = false;
	ends[1] = await_peer(world->ranks[to], HANG_SECONDS, &peer);
	assert_int_equal(peer, from);
	assert_true(asks(ends[0]) && asks(ends[1]));
}

static void await_bytes(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	assert_int_equal(poll(&ready, 1, HANG_SECONDS * 1000), 1);
}

/* The connection carries what is sent, and nothing else. */
static void carries(const int ends[2])
{
	for (int i = 0; i < 2; i++) {
		char got[3], said[] = { 'a', (char)i };
		assert_int_equal(send(ends[i], said, 2, 0), 2);
		await_bytes(ends[!i]);
		assert_int_equal(recv(ends[!i], got, 3, 0), 2);
		assert_memory_equal(got, said, 2);
	}
	close(ends[0]);
	close(ends[1]);
}

static void join_all(struct world *world)
{
	for (int from = world->size - 1; from > 0; from--)
		for (int to = 0; to < from; to++) {
			int ends[2];
			join(world, from, to, ends);
			carries(ends);
		}
	tear_down(world);
}

static void any_two_connect(void **state)
{
	for (int size = 1; size <= WORLD_MAX; size += 8) {
		struct world world;
		set_up(&world, size, "127.0.0.2", "127.0.0.1");
		join_all(&world);
	}
}

static void over_ipv6(void **state)
{
	struct world world;
	struct err err;
	struct rank_links *links = rank_links_open(0, 1, "::1", &err);
	if (!links)
		skip(); /* a machine without it */
	rank_links_close(links);
	set_up(&world, 3, "::1", "::1");
	join_all(&world);
}

static void what_is_no_place(void **state)
{
#define KEY "0123456789abcdef0123456789abcdef"
	static const char *const good[] = { "10.0.0.1 1 " KEY, "fe80::1 65535 " KEY };
	static const char *const bad[] = { "", " ", "10.0.0.1", "10.0.0.1 ", "10.0.0.1 1",
		"10.0.0.1 1 ", "10.0.0.1 1 0123456789abcdef", "10.0.0.1 1 0123456789abcdef0123456789abcdeg",
		"10.0.0.1 1 " KEY "0", "10.0.0.1 0 " KEY, "10.0.0.1 65536 " KEY, "10.0.0.1 -1 " KEY,
		"10.0.0 1 " KEY, "node7 1 " KEY, "1 " KEY, "10.0.0.1 1x " KEY,
		"1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc:dddd:eeee:ffff:0000:1111 "
		"1 " KEY };
	struct world world;
	struct err err;
	set_up_four(&world);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_int_equal(rank_links_find(world.ranks[0], 1, good[i]), 0);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (rank_links_find(world.ranks[0], 1, bad[i]) == 0)
			fail_msg("'%s' passes for a place", bad[i]);
	tear_down(&world);
	assert_null(rank_links_open(0, 2, "node7", &err));
	assert_null(rank_links_open(0, 2, "192.0.2.1", &err)); /* no machine's (RFC 5737) */
	assert_non_null(strstr(err.text, "assign"));
}

/* ---- strangers ---- */

static int connect_to(const struct rank_links *links, unsigned char key[16])
{
	char address[64], digits[64];
	int port;
	assert_int_equal(sscanf(rank_links_place(links), "%63s %d %63s", address, &port, digits), 3);
	assert_int_equal(run_key_read(digits, key, NULL), 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
	return fd;
}

static void make_hello(unsigned char hello[HELLO], uint32_t from, uint32_t to,
	const unsigned char key[16])
{
	memcpy(hello, "MCL1", 4);
	bytes_put_le32(hello + 4, from);
	bytes_put_le32(hello + 8, to);
	bytes_put_le64(hello + 12, siphash(key, hello, 12));
}

/* Whether the other end closes the connection. */
static bool is_dropped(int fd)
{
	char byte;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval) { .tv_sec = HANG_SECONDS },
		sizeof(struct timeval));
	ssize_t got = recv(fd, &byte, 1, 0);
	return got == 0 || (got < 0 && errno != EAGAIN);
}

/* A rank drops at once what it does not take for a peer, and peers come through. */
static void strangers_are_dropped(void **state)
{
	struct world world;
	unsigned char key[16], wrong[16] = "another one's k", hello[HELLO];
	int fds[8 + HELLO], used = 0, peer, ends[2];
	set_up_four(&world);
	struct rank_links *one = world.ranks[1];
	const struct {
		uint32_t from, to;
	} cases[] = { { 0, 1 }, { 1, 1 }, { 4, 1 }, { 0xffffffff, 1 }, { 2, 0 }, { 2, 2 } };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		fds[used] = connect_to(one, key);
		make_hello(hello, cases[i].from, cases[i].to, key);
		assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	}
	for (int at = 0; at < HELLO; at++) {
		fds[used] = connect_to(one, key);
		make_hello(hello, 2, 1, key);
		hello[at] ^= 1;
		assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	}
	fds[used] = connect_to(one, key);
	make_hello(hello, 2, 1, wrong);
	assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	fds[used] = connect_to(one, key);
	shutdown(fds[used++], SHUT_WR);
	for (int i = 0; i < used; i++) {
		assert_int_equal(await_end(one, HANG_SECONDS, &peer, fds[i]), -1);
		if (!is_dropped(fds[i]))
			fail_msg("stranger %d is not dropped", i);
		close(fds[i]);
	}
	join(&world, 3, 1, ends);
	carries(ends);
	tear_down(&world);
}

/* Who says nothing, or half of it, keeps nobody out; a hello that comes byte by byte is one. */
static void the_silent_and_the_slow(void **state)
{
	struct world world;
	unsigned char key[16], hello[HELLO];
	int fds[SILENT], peer = -1;
	set_up_four(&world);
	struct rank_links *zero = world.ranks[0];
	for (int i = 0; i < SILENT; i++) {
		fds[i] = connect_to(zero, key);
		assert_int_equal(send(fds[i], "MCL1", (size_t)(i % 4), 0), i % 4);
	}
	int slow = connect_to(zero, key);
	make_hello(hello, 2, 0, key);
	for (int at = 0; at < HELLO; at++) {
		assert_int_equal(await_peer(zero, 0.002, &peer), -1);
		assert_int_equal(send(slow, hello + at, 1, 0), 1);
	}
	int ends[2] = { slow, await_peer(zero, HANG_SECONDS, &peer) };
	assert_int_equal(peer, 2);
	carries(ends);
	assert_true(is_dropped(fds[0]));
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	tear_down(&world);
}

/* All ranks of a large world connect before one says hello: each comes through. */
static void all_may_connect_at_once(void **state)
{
	enum { SIZE = 80 };
	struct err err;
	unsigned char key[16], hello[HELLO];
	int fds[SIZE], peer = -1;
	bool came[SIZE] = { false };
	struct rank_links *zero = rank_links_open(0, SIZE, "127.0.0.1", &err);
	assert_non_null(zero);
	for (int rank = 1; rank < SIZE; rank++)
		fds[rank] = connect_to(zero, key);
	/* A slow machine accepts the rest later, which proves less, but does no harm. */
	assert_int_equal(await_peer(zero, 0.2, &peer), -1);
	for (int rank = 1; rank < SIZE; rank++) {
		make_hello(hello, (uint32_t)rank, 0, key);
		assert_int_equal(send(fds[rank], hello, HELLO, MSG_NOSIGNAL), HELLO);
	}
	for (int rank = 1; rank < SIZE; rank++) {
		int fd = await_peer(zero, HANG_SECONDS, &peer);
		assert_true(fd >= 0 && !came[peer]);
		came[peer] = true;
		close(fd);
	}
	for (int rank = 1; rank < SIZE; rank++)
		close(fds[rank]);
	rank_links_close(zero);
}

/* A connection that waits is not looked at without end, and is there once a descriptor is free. */
static void without_a_descriptor_nothing_spins(void **state)
{
	struct world world;
	struct rlimit old;
	unsigned char key[16], hello[HELLO];
	int held[200], used = 0, peer = -1, ends[2];
	set_up_four(&world);
	ends[0] = connect_to(world.ranks[0], key);
	make_hello(hello, 1, 0, key);
	assert_int_equal(send(ends[0], hello, HELLO, 0), HELLO);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { 200, old.rlim_max }), 0);
	while ((held[used] = dup(ends[0])) >= 0)
		used++;
	clock_t begun = clock();
	assert_int_equal(await_peer(world.ranks[0], 1, &peer), -1);
	double busy = (double)(clock() - begun) / CLOCKS_PER_SEC;
	setrlimit(RLIMIT_NOFILE, &old);
	while (used > 0)
		close(held[--used]);
	if (busy > 0.1)
		fail_msg("it was busy for %g of 1 s", busy);
	ends[1] = await_peer(world.ranks[0], HANG_SECONDS, &peer);
	assert_int_equal(peer, 1);
	carries(ends);
	tear_down(&world);
}

/* Nobody listens there: that is told at once. */
static void who_is_gone_refuses(void **state)
{
	struct world world;
	unsigned char hello[HELLO];
	int error = 0;
	set_up_four(&world);
	rank_links_close(world.ranks[2]);
	world.ranks[2] = NULL;
	int fd = rank_links_connect(world.ranks[3], 2, hello);
	if (fd < 0) {
		error = errno;
	} else {
		await_bytes(fd);
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t) { sizeof error });
		close(fd);
	}
	assert_int_equal(error, ECONNREFUSED);
	tear_down(&world);
}

static int partially(void **state)
{
	partial = true;
	return 0;
}

static int wholly(void **state)
{
	partial = false;
	return 0;
}

#define TEST(name) \
	cmocka_unit_test(name), \
	{ \
#name " in parts", name, partially, wholly, NULL \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(any_two_connect),
		TEST(over_ipv6),
		TEST(what_is_no_place),
		TEST(strangers_are_dropped),
		TEST(the_silent_and_the_slow),
		TEST(all_may_connect_at_once),
		TEST(without_a_descriptor_nothing_spins),
		TEST(who_is_gone_refuses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
