/* SPDX-License-Identifier: Apache-2.0 */
/* comm_links: worlds of ranks in one process, each in a thread, over loopback; strangers, and ranks
 * that don't come. Each test runs a second time with calls on sockets that do as little at once as
 * they may: loopback's handshake ends inside connect(), a network's does not. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
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
#include "launch/run_key.h"
#include "tests/tools/partial_io.h"
#include "tests/unit/hang.h"
#include "trainer/comm/comm_links.h"

#define WORLD_MAX 40
#define HELLO 20
#define SILENT 70 /* more than a rank keeps */

static bool partial; /* whether calls of the ranks on sockets do little at once */

struct rank {
	struct comm_links *links;
	pthread_t thread;
	double limit, seconds;
	bool comes;
	enum comm_links_end end;
	int peer;
	struct err err;
};

struct world {
	int size;
	struct rank ranks[WORLD_MAX];
};

static void set_up(struct world *world, int size, double limit)
{
	struct err err;
	*world = (struct world) { .size = size };
	for (int rank = 0; rank < size; rank++) {
		world->ranks[rank] = (struct rank) { .links = comm_links_open(rank, size,
												 rank % 2 ? "127.0.0.1" : "127.0.0.2", &err),
			.limit = limit,
			.comes = true };
		if (!world->ranks[rank].links)
			fail_msg("%s", err.text);
	}
	for (int rank = 0; rank < size; rank++)
		for (int peer = 0; peer < size; peer++)
			assert_int_equal(comm_links_find(world->ranks[rank].links, peer,
								 comm_links_place(world->ranks[peer].links)),
				0);
}

static void *run_rank(void *arg)
{
	struct rank *rank = arg;
	double begun = clock_now();
	partial_io_here = partial;
	rank->end = comm_links_connect(rank->links, rank->limit, &rank->peer, &rank->err);
	rank->seconds = clock_now() - begun;
	return NULL;
}

static void begin(struct rank *rank)
{
	assert_int_equal(pthread_create(&rank->thread, NULL, run_rank, rank), 0);
}

static void run(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++)
		if (world->ranks[rank].comes)
			begin(&world->ranks[rank]);
	for (int rank = 0; rank < world->size; rank++)
		if (world->ranks[rank].comes)
			pthread_join(world->ranks[rank].thread, NULL);
}

static void tear_down(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++)
		comm_links_close(world->ranks[rank].links);
}

static void ends(const struct world *world, int rank, enum comm_links_end end, int peer,
	const char *text)
{
	const struct rank *one = &world->ranks[rank];
	if (one->end != end
		|| (end != COMM_LINKS_ALL && (one->peer != peer || !strstr(one->err.text, text))))
		fail_msg("rank %d ended with %d for rank %d: %s", rank, one->end, one->peer, one->err.text);
	if (end != COMM_LINKS_ALL)
		assert_int_equal(one->err.status, EXIT_LOST);
}

/* Each connection is that of the two ranks that it is said to be, carries what is sent, and nothing
 * else. */
static void carries(struct world *world)
{
	int fds[WORLD_MAX][WORLD_MAX];
	for (int rank = 0; rank < world->size; rank++) {
		ends(world, rank, COMM_LINKS_ALL, 0, "");
		for (int peer = 0; peer < world->size; peer++) {
			unsigned char pair[2] = { (unsigned char)rank, (unsigned char)peer };
			fds[rank][peer] = comm_links_take(world->ranks[rank].links, peer);
			assert_int_equal(fds[rank][peer] >= 0, peer != rank);
			if (peer != rank)
				assert_int_equal(send(fds[rank][peer], pair, 2, 0), 2);
		}
	}
	for (int rank = 0; rank < world->size; rank++)
		for (int peer = 0; peer < world->size; peer++) {
			unsigned char got[3];
			if (peer == rank)
				continue;
			assert_int_equal(recv(fds[rank][peer], got, 3, 0), 2);
			assert_int_equal(got[0], peer);
			assert_int_equal(got[1], rank);
		}
	for (int rank = 0; rank < world->size; rank++)
		for (int peer = 0; peer < world->size; peer++)
			if (peer != rank)
				close(fds[rank][peer]);
}

static void all_are_connected_with_all(void **state)
{
	static const int sizes[] = { 1, 2, 3, 8, 17, WORLD_MAX };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct world world;
		set_up(&world, sizes[i], 20);
		run(&world);
		carries(&world);
		tear_down(&world);
	}
}

static void over_ipv6(void **state)
{
	struct world world;
	struct err err;
	set_up(&world, 3, 20);
	for (int rank = 0; rank < 3; rank++) {
		comm_links_close(world.ranks[rank].links);
		world.ranks[rank].links = comm_links_open(rank, 3, "::1", &err);
		if (!world.ranks[rank].links)
			skip(); /* a machine without it */
	}
	for (int rank = 0; rank < 3; rank++)
		for (int peer = 0; peer < 3; peer++)
			assert_int_equal(comm_links_find(world.ranks[rank].links, peer,
								 comm_links_place(world.ranks[peer].links)),
				0);
	run(&world);
	carries(&world);
	tear_down(&world);
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
	set_up(&world, 2, 1);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_int_equal(comm_links_find(world.ranks[0].links, 1, good[i]), 0);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (comm_links_find(world.ranks[0].links, 1, bad[i]) == 0)
			fail_msg("'%s' passes for a place", bad[i]);
	tear_down(&world);
	assert_null(comm_links_open(0, 2, "node7", &err));
	assert_null(comm_links_open(0, 2, "192.0.2.1", &err)); /* no machine's (RFC 5737) */
	assert_non_null(strstr(err.text, "assign"));
}

/* ---- strangers ---- */

static int connect_to(const struct comm_links *links, unsigned char key[16])
{
	char address[64], digits[64];
	int port;
	assert_int_equal(sscanf(comm_links_place(links), "%63s %d %63s", address, &port, digits), 3);
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

static void strangers_are_dropped(void **state)
{
	struct world world;
	unsigned char key[16], wrong[16] = "another one's k", hello[HELLO];
	int fds[8 + HELLO], used = 0;
	set_up(&world, 4, 20);
	begin(&world.ranks[1]);
	const struct {
		uint32_t from, to;
	} cases[] = { { 0, 1 }, { 1, 1 }, { 4, 1 }, { 0xffffffff, 1 }, { 2, 0 }, { 2, 2 } };
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		fds[used] = connect_to(world.ranks[1].links, key);
		make_hello(hello, cases[i].from, cases[i].to, key);
		assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	}
	for (int at = 0; at < HELLO; at++) {
		fds[used] = connect_to(world.ranks[1].links, key);
		make_hello(hello, 2, 1, key);
		hello[at] ^= 1;
		assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	}
	fds[used] = connect_to(world.ranks[1].links, key);
	make_hello(hello, 2, 1, wrong);
	assert_int_equal(send(fds[used++], hello, HELLO, 0), HELLO);
	fds[used] = connect_to(world.ranks[1].links, key);
	shutdown(fds[used++], SHUT_WR);
	for (int i = 0; i < used; i++) {
		if (!is_dropped(fds[i]))
			fail_msg("stranger %d is not dropped", i);
		close(fds[i]);
	}
	for (int rank = 0; rank < 4; rank++)
		if (rank != 1)
			begin(&world.ranks[rank]);
	for (int rank = 0; rank < 4; rank++)
		pthread_join(world.ranks[rank].thread, NULL);
	carries(&world);
	tear_down(&world);
}

/* Who says nothing, or half of it, keeps nobody out; a hello that comes byte by byte is one. */
static void the_silent_and_the_slow(void **state)
{
	struct world world;
	unsigned char key[16], hello[HELLO];
	int fds[SILENT];
	set_up(&world, 3, 20);
	for (int i = 0; i < SILENT; i++) {
		fds[i] = connect_to(world.ranks[0].links, key);
		assert_int_equal(send(fds[i], "MCL1", (size_t)(i % 4), 0), i % 4);
	}
	begin(&world.ranks[0]);
	int slow = connect_to(world.ranks[0].links, key);
	make_hello(hello, 2, 0, key);
	for (int at = 0; at < HELLO; at++) {
		assert_int_equal(send(slow, hello + at, 1, 0), 1);
		usleep(1000);
	}
	begin(&world.ranks[1]);
	int to_one = connect_to(world.ranks[1].links, key);
	make_hello(hello, 2, 1, key);
	assert_int_equal(send(to_one, hello, HELLO, 0), HELLO);
	char word = 0x47;
	assert_int_equal(send(slow, &word, 1, 0), 1);
	word = 0;
	assert_int_equal(recv(slow, &word, 1, 0), 1);
	assert_int_equal(word, 0x47);
	for (int rank = 0; rank < 2; rank++) {
		pthread_join(world.ranks[rank].thread, NULL);
		ends(&world, rank, COMM_LINKS_ALL, 0, "");
	}
	for (int i = 0; i < SILENT; i++)
		close(fds[i]);
	close(slow);
	close(to_one);
	tear_down(&world);
}

/* ---- ranks that don't come ---- */

/* A connection that waits is not looked at without end. */
static void without_a_descriptor_nothing_spins(void **state)
{
	struct world world;
	struct rlimit old;
	unsigned char key[16];
	int held[200], used = 0, stranger;
	set_up(&world, 2, 1);
	stranger = connect_to(world.ranks[0].links, key);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { 200, old.rlim_max }), 0);
	while ((held[used] = dup(stranger)) >= 0)
		used++;
	clock_t begun = clock();
	world.ranks[1].comes = false;
	run(&world);
	double busy = (double)(clock() - begun) / CLOCKS_PER_SEC;
	setrlimit(RLIMIT_NOFILE, &old);
	while (used > 0)
		close(held[--used]);
	close(stranger);
	ends(&world, 0, COMM_LINKS_LEFT, 1, "it did not connect within 1 s");
	if (busy > 0.1)
		fail_msg("it was busy for %g of 1 s", busy);
	tear_down(&world);
}

/* It listens, as one that was stopped does. Who waits for its hello names it, the others are left.
 * Those that know for whom they wait give up after nine tenths of the time: that has to be soon
 * enough on a busy machine, too. */
static void who_does_not_come_is_named(void **state)
{
	for (int late = 0; late < 4; late++) {
		struct world world;
		set_up(&world, 4, late < 2 ? 1 : 5);
		world.ranks[late].comes = false;
		run(&world);
		for (int rank = 0; rank < 4; rank++)
			if (rank != late && (rank == 0 || rank > late))
				assert_int_equal(world.ranks[rank].end, COMM_LINKS_LEFT);
		/* The first of those that know; another one may see that it has given up. */
		bool named = late < 2;
		for (int rank = 1; rank < late; rank++)
			if (world.ranks[rank].end == COMM_LINKS_MISSING) {
				ends(&world, rank, COMM_LINKS_MISSING, late, "it did not connect within 5 s");
				named = true;
			}
		assert_true(named);
		tear_down(&world);
	}
}

/* One that is connected with rank 0 and with nobody else: rank 0 waits for its word. */
static void rank_0_waits_for_a_word(void **state)
{
	struct world world;
	unsigned char key[16], hello[HELLO];
	set_up(&world, 3, 0.5);
	int fds[2] = { connect_to(world.ranks[0].links, key) };
	make_hello(hello, 1, 0, key);
	assert_int_equal(send(fds[0], hello, HELLO, 0), HELLO);
	assert_int_equal(send(fds[0], "\x47", 1, 0), 1);
	fds[1] = connect_to(world.ranks[0].links, key);
	make_hello(hello, 2, 0, key);
	assert_int_equal(send(fds[1], hello, HELLO, 0), HELLO);
	world.ranks[1].comes = world.ranks[2].comes = false;
	run(&world);
	ends(&world, 0, COMM_LINKS_LEFT, 2, "it was not connected with all ranks within 0.5 s");
	close(fds[0]);
	close(fds[1]);
	tear_down(&world);
}

/* Nobody listens there: that is told at once, and the others don't wait for long. */
static void who_is_refused_gives_up_and_the_others_follow(void **state)
{
	struct world world;
	set_up(&world, 5, HANG_SECONDS);
	world.ranks[2].comes = false;
	comm_links_close(world.ranks[2].links);
	world.ranks[2].links = NULL;
	run(&world);
	for (int rank = 3; rank < 5; rank++)
		ends(&world, rank, COMM_LINKS_MISSING, 2, "Connection refused");
	for (int rank = 0; rank < 5; rank++)
		assert_true(world.ranks[rank].seconds < HANG_SECONDS / 2.0);
	for (int rank = 0; rank < 2; rank++)
		ends(&world, rank, COMM_LINKS_LEFT, world.ranks[rank].peer, "closed its connection");
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
		TEST(all_are_connected_with_all),
		TEST(over_ipv6),
		TEST(what_is_no_place),
		TEST(strangers_are_dropped),
		TEST(the_silent_and_the_slow),
		TEST(without_a_descriptor_nothing_spins),
		TEST(who_does_not_come_is_named),
		TEST(rank_0_waits_for_a_word),
		TEST(who_is_refused_gives_up_and_the_others_follow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
