/* SPDX-License-Identifier: Apache-2.0 */
/* bootstrap: worlds of ranks in one process, over loopback, and strangers among them. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/listen.h"
#include "common/siphash.h"
#include "launch/bootstrap.h"
#include "launch/bootstrap_message.h"
#include "launch/run_key.h"
#include "tests/unit/hang.h"
#include "tests/unit/ports.h"

#define WORLD 9
#define FENCES 4
#define GREETING 20
#define HEAD 32
#define TAG 8

ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);

static atomic_bool
	crumbles; /* connections move a byte at a time, and one time in three, by chance, none */

static bool is_held_up(void)
{
	return rand() % 3 == 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
	if (!atomic_load(&crumbles))
		return __real_send(fd, bytes, size, flags);
	errno = EAGAIN;
	return is_held_up() ? -1 : __real_send(fd, bytes, 1, flags);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
	if (!atomic_load(&crumbles))
		return __real_recv(fd, bytes, size, flags);
	errno = EAGAIN;
	return is_held_up() ? -1 : __real_recv(fd, bytes, 1, flags);
}

static const unsigned char key[16] = "sixteen bytes or", other_key[16] = "sixteen other  b";

struct world {
	char run[64];
	struct bootstrap *ranks[BOOTSTRAP_WORLD_MAX];
};

static struct world *make_world(void)
{
	static int runs;
	struct world *world = calloc(1, sizeof *world);
	assert_non_null(world);
	do
		snprintf(world->run, sizeof world->run, "test.%d.%d", (int)getpid(), runs++);
	while (!ports_are_free(world->run, 1, SOCK_STREAM));
	return world;
}

static void begin_with(struct world *world, int rank, int size, const unsigned char *with)
{
	struct err err;
	const struct bootstrap_plan plan = { .rank = rank,
		.world_size = size,
		.node = rank % 2 ? "localhost" : NULL,
		.run = run_number(world->run) };
	world->ranks[rank] = bootstrap_begin(&plan, &err);
	if (!world->ranks[rank])
		fail_msg("%s", err.text);
	if (with)
		bootstrap_set_key(world->ranks[rank], with);
}

/* Each rank's bytes differ in content and length from every other's, and from those of any other
 * fence. */
static size_t bytes_of(int rank, int fence, unsigned char *out)
{
	size_t size = rank == 2 ? 0
		: rank == 3         ? (atomic_load(&crumbles) ? 700 : 700000) + (size_t)fence
							: (size_t)rank * 10 + (size_t)fence;
	for (size_t i = 0; i < size; i++)
		out[i] = (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)fence);
	return size;
}

static void come(struct world *world, int rank, int fence)
{
	unsigned char *bytes = malloc(1 << 20);
	size_t size = bytes_of(rank, fence, bytes);
	bootstrap_come(world->ranks[rank], bytes, size);
	free(bytes);
}

/* Until all have met, or until it is certain that they will not. */
static void await(struct world *world, int rank, int fence, bool wanted)
{
	struct deadline deadline = deadline_in(HANG_SECONDS);
	if (bootstrap_wait(world->ranks[rank], (uint32_t)fence, deadline) != wanted
		|| deadline_passed(deadline))
		fail_msg("rank %d at fence %d: %s", rank, fence, wanted ? "they do not meet" : "met");
}

static void has_all(struct world *world, int rank, int size, int fence)
{
	unsigned char *bytes = malloc(1 << 20);
	assert_true(bootstrap_complete(world->ranks[rank]) > (uint32_t)fence);
	for (int peer = 0; peer < size; peer++) {
		size_t got, wanted = bytes_of(peer, fence, bytes);
		const unsigned char *at = bootstrap_bytes(world->ranks[rank], (uint32_t)fence, peer, &got);
		assert_int_equal(got, wanted);
		assert_memory_equal(at, bytes, wanted);
	}
	free(bytes);
}

static void tear_down(struct world *world)
{
	for (int rank = BOOTSTRAP_WORLD_MAX - 1; rank >= 0; rank--)
		bootstrap_end(world->ranks[rank]);
	free(world);
}

/* All have come to the first fence. */
static void meet_at_all_fences(struct world *world)
{
	for (int fence = 0; fence < FENCES; fence++)
		for (int rank = 0; rank < WORLD; rank++) {
			await(world, rank, fence, true);
			has_all(world, rank, WORLD, fence);
			if (fence + 1 < FENCES)
				come(world, rank, fence + 1);
		}
}

/* Whichever rank is first; the ranks go through their fences at their own pace. */
static void all_get_what_all_came_with(void **state)
{
	for (int first = 0; first < 3; first++) {
		struct world *world = make_world();
		for (int i = 0; i < WORLD; i++) {
			begin_with(world, (first + i) % WORLD, WORLD, first == 1 ? NULL : key);
			come(world, (first + i) % WORLD, 0);
		}
		/* The key may come after the first fence. */
		for (int rank = WORLD - 1; rank >= 0 && first == 1; rank--)
			bootstrap_set_key(world->ranks[rank], key);
		meet_at_all_fences(world);
		for (int fence = 0; fence < FENCES; fence++)
			has_all(world, first, WORLD, fence);
		tear_down(world);
	}
}

static void come_with(struct world *world, int rank, const char *name, const char *value)
{
	struct put_list list = { 0 };
	assert_int_equal(put_list_add(&list, name, value, strlen(value)), 0);
	bootstrap_come(world->ranks[rank], list.bytes, list.size);
	free(list.bytes);
}

/* Round 1 has only passing values, the others one that is kept. */
static void passing_values_are_forgotten(void **state)
{
	struct world *world = make_world();
	size_t size, found;
	for (int rank = 0; rank < 3; rank++)
		begin_with(world, rank, 3, key);
	for (int fence = 0; fence < 4; fence++) {
		for (int rank = 0; rank < 3; rank++)
			come_with(world, rank, fence == 1 || rank < 2 ? "~name" : "name", "value");
		for (int rank = 0; rank < 3; rank++) {
			await(world, rank, fence, true);
			for (int of = 0; of <= fence; of++) {
				const unsigned char *list =
					bootstrap_bytes(world->ranks[rank], (uint32_t)of, 2, &size);
				if (of == 1 && fence > 1)
					assert_null(list);
				else
					assert_memory_equal(put_list_find(list, size, of == 1 ? "~name" : "name",
											&found),
						"value", 5);
			}
		}
	}
	tear_down(world);
}

static void what_comes_in_crumbs_is_whole(void **state)
{
	struct world *world = make_world();
	atomic_store(&crumbles, true);
	for (int rank = 0; rank < WORLD; rank++) {
		begin_with(world, rank, WORLD, key);
		come(world, rank, 0);
	}
	meet_at_all_fences(world);
	atomic_store(&crumbles, false);
	tear_down(world);
}

static void the_largest_world(void **state)
{
	struct world *world = make_world();
	struct err err;
	for (int rank = 0; rank < BOOTSTRAP_WORLD_MAX; rank++) {
		begin_with(world, rank, BOOTSTRAP_WORLD_MAX, key);
		come(world, rank, 0);
	}
	for (int rank = 0; rank < BOOTSTRAP_WORLD_MAX; rank++) {
		await(world, rank, 0, true);
		has_all(world, rank, BOOTSTRAP_WORLD_MAX, 0);
	}
	tear_down(world);
	const struct bootstrap_plan plan = { .world_size = BOOTSTRAP_WORLD_MAX + 1 };
	assert_null(bootstrap_begin(&plan, &err));
	assert_non_null(strstr(err.text, "65 ranks"));
}

static void nobody_has_met_before_the_last_has_come(void **state)
{
	struct world *world = make_world();
	for (int rank = 0; rank < 4; rank++)
		begin_with(world, rank, 4, key);
	for (int rank = 0; rank < 3; rank++)
		come(world, rank, 0);
	deadline_sleep(deadline_in(60), 0.1);
	for (int rank = 0; rank < 3; rank++) {
		assert_false(bootstrap_wait(world->ranks[rank], 0, deadline_in(0)));
		assert_int_equal(bootstrap_complete(world->ranks[rank]), 0);
	}
	come(world, 3, 0);
	for (int rank = 0; rank < 4; rank++)
		await(world, rank, 0, true);
	/* Who ends without having met does not wait. */
	come(world, 1, 1);
	tear_down(world);
}

/* What a rank has been told of is not taken back by the end of another. */
static void a_rank_that_is_gone(void **state)
{
	struct world *world = make_world();
	for (int rank = 0; rank < 4; rank++) {
		begin_with(world, rank, 4, key);
		come(world, rank, 0);
	}
	for (int rank = 0; rank < 4; rank++)
		await(world, rank, 0, true);
	bootstrap_end(world->ranks[3]);
	world->ranks[3] = NULL;
	come(world, 0, 1);
	await(world, 0, 1, false);
	/* And without rank 0 nobody meets, now or later. */
	bootstrap_end(world->ranks[0]);
	world->ranks[0] = NULL;
	come(world, 1, 1);
	await(world, 1, 1, false);
	come(world, 1, 2);
	await(world, 1, 2, false);
	has_all(world, 1, 4, 0);
	tear_down(world);
}

static void too_much_is_not_sent(void **state)
{
	struct world *world = make_world();
	unsigned char *much = calloc(1, BOOTSTRAP_BYTES_MAX + 1);
	for (int rank = 0; rank < 2; rank++) {
		begin_with(world, rank, 2, key);
		bootstrap_come(world->ranks[rank], much, BOOTSTRAP_BYTES_MAX + 1);
		await(world, rank, 0, false);
	}
	free(much);
	tear_down(world);
}

static void a_port_that_is_taken(void **state)
{
	struct world *world = make_world();
	struct err err;
	char port[20];
	begin_with(world, 0, 2, NULL);
	const struct bootstrap_plan plan = { .world_size = 2, .run = run_number(world->run) };
	assert_null(bootstrap_begin(&plan, &err));
	snprintf(port, sizeof port, "port %d (TCP)", run_port(run_number(world->run), 0));
	assert_non_null(strstr(err.text, port));
	tear_down(world);
}

/* ---- strangers ---- */

static int call(const struct world *world)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)run_port(run_number(world->run), 0)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

static void receive(int fd, void *bytes, size_t size)
{
	struct timeval limit = { .tv_sec = HANG_SECONDS };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	assert_int_equal(recv(fd, bytes, size, MSG_WAITALL), (ssize_t)size);
}

/* Byte by byte, as a network may bring it. */
static void trickle(int fd, const unsigned char *bytes, size_t size)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int) { 1 }, sizeof(int));
	for (size_t i = 0; i < size; i++)
		assert_int_equal(send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
}

static void write_challenge(const struct world *world, uint64_t challenge,
	unsigned char out[GREETING])
{
	memcpy(out, "MGC2", 4);
	bytes_put_le64(out + 4, run_number(world->run));
	bytes_put_le64(out + 12, challenge);
}

/* As rank 0 with this key does. */
static void write_proof(const struct world *world, uint64_t challenge, uint64_t session,
	const unsigned char *with, unsigned char out[GREETING])
{
	unsigned char text[28];
	memcpy(text, "MGP2", 4);
	bytes_put_le64(text + 4, session);
	bytes_put_le64(text + 12, run_number(world->run));
	bytes_put_le64(text + 20, challenge);
	memcpy(out, text, 12);
	bytes_put_le64(out + 12, siphash(with, text, sizeof text));
}

/* Rank 0 proves that it knows the key; returns the session. */
static uint64_t greet(const struct world *world, int fd)
{
	unsigned char bytes[GREETING], wanted[GREETING];
	write_challenge(world, 0x0123456789abcdef, bytes);
	trickle(fd, bytes, sizeof bytes);
	receive(fd, bytes, sizeof bytes);
	uint64_t session = bytes_le64(bytes + 4);
	write_proof(world, 0x0123456789abcdef, session, key, wanted);
	assert_memory_equal(bytes, wanted, sizeof bytes);
	return session;
}

struct words {
	unsigned char bytes[HEAD + 4 + TAG];
	uint32_t rank, fence, size;
	const unsigned char *key;
};

/* A message with a body of 4 bytes, whatever its head says. */
static void write_words(uint64_t session, struct words *words)
{
	memcpy(words->bytes, "MGA2", 4);
	bytes_put_le64(words->bytes + 4, session);
	bytes_put_le32(words->bytes + 12, words->rank);
	bytes_put_le32(words->bytes + 16, words->fence);
	bytes_put_le32(words->bytes + 20, words->size);
	bytes_put_le64(words->bytes + 24, siphash(words->key, words->bytes, 24));
	memcpy(words->bytes + HEAD, "word", 4);
	bytes_put_le64(words->bytes + HEAD + 4, siphash(words->key, words->bytes, HEAD + 4));
}

/* Whether the other side ends the connection over what it is sent. */
static void is_refused(int fd, const void *bytes, size_t size)
{
	char answer;
	struct timeval limit = { .tv_sec = HANG_SECONDS };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
	errno = 0;
	if (recv(fd, &answer, 1, 0) > 0)
		fail_msg("it was answered");
	assert_true(errno != EAGAIN);
	close(fd);
}

static void challenges_that_are_none(void **state)
{
	struct world *world = make_world();
	unsigned char bytes[GREETING];
	begin_with(world, 0, 4, key);
	for (size_t byte = 0; byte < 12; byte++) {
		write_challenge(world, 7, bytes);
		bytes[byte] ^= 0x10;
		is_refused(call(world), bytes, sizeof bytes);
	}
	tear_down(world);
}

static void messages_that_are_none(void **state)
{
	struct world *world = make_world();
	begin_with(world, 0, 4, key);
	const struct words wrong[] = {
		{ .rank = 1, .size = 4, .key = other_key },
		{ .rank = 0, .size = 4, .key = key }, /* as rank 0 itself */
		{ .rank = 4, .size = 4, .key = key },
		{ .rank = 1, .fence = 1, .size = 4, .key = key },
		{ .rank = 1, .size = BOOTSTRAP_BYTES_MAX + 1, .key = key },
		{ .rank = 1, .size = UINT32_MAX, .key = key },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct words words = wrong[i];
		int fd = call(world);
		write_words(greet(world, fd), &words);
		is_refused(fd, words.bytes, HEAD);
	}
	struct words words = { .rank = 1, .size = 4, .key = key };
	for (size_t byte = 0; byte < sizeof words.bytes; byte += 3) {
		int fd = call(world);
		write_words(greet(world, fd), &words);
		words.bytes[byte] ^= 0x10;
		is_refused(fd, words.bytes, byte < HEAD ? HEAD : sizeof words.bytes);
		/* Each connection that has said who it is counts as that rank's. */
		if (byte >= HEAD)
			break;
	}
	tear_down(world);
}

/* Rank 1's by hand, which are taken however they come, and not over another connection. */
static void a_message_belongs_to_its_connection(void **state)
{
	struct world *world = make_world();
	struct words words = { .rank = 1, .size = 4, .key = key };
	begin_with(world, 0, 2, key);
	int heard = call(world), fd = call(world);
	uint64_t session = greet(world, heard);
	assert_true(greet(world, fd) != session);
	write_words(session, &words);
	is_refused(fd, words.bytes, HEAD);
	trickle(heard, words.bytes, sizeof words.bytes);
	come(world, 0, 0);
	await(world, 0, 0, true);
	size_t size;
	assert_memory_equal(bootstrap_bytes(world->ranks[0], 0, 1, &size), "word", 4);
	close(heard);
	tear_down(world);
}

/* It neither looks at the connection that waits without end, nor loses it. */
static void rank_0_without_a_descriptor(void **state)
{
	struct world *world = make_world();
	struct rlimit old;
	begin_with(world, 0, 2, NULL);
	int fd = call(world);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit) { 3, old.rlim_max }), 0);
	bootstrap_set_key(world->ranks[0], key);
	clock_t begun = clock();
	deadline_sleep(deadline_in(10), 1);
	double busy = (double)(clock() - begun) / CLOCKS_PER_SEC;
	setrlimit(RLIMIT_NOFILE, &old);
	if (busy > 0.1)
		fail_msg("it was busy for %g of 1 s", busy);
	greet(world, fd);
	close(fd);
	tear_down(world);
}

/* ---- somebody else at rank 0's port ---- */

static int accept_rank(int listener, const struct world *world, unsigned char challenge[GREETING])
{
	unsigned char wanted[GREETING];
	int fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	receive(fd, challenge, GREETING);
	write_challenge(world, bytes_le64(challenge + 12), wanted);
	assert_memory_equal(challenge, wanted, GREETING);
	return fd;
}

/* One who listens there before rank 0 does learns nothing of what a rank has put, whatever he says.
 */
static void who_does_not_prove_to_be_rank_0_is_told_nothing(void **state)
{
	enum { SILENT, OTHER_KEY, OTHER_CHALLENGE, OTHER_RUN, ECHO, AS_BEFORE, LIES };
	for (int lie = SILENT; lie < LIES; lie++) {
		struct world *world = make_world(), *other = make_world();
		unsigned char challenge[GREETING], proof[GREETING];
		int port;
		int listener = listen_any(run_port(run_number(world->run), 0), &port);
		assert_true(listener >= 0);
		begin_with(world, 1, 2, key);
		come(world, 1, 0);
		int fd = accept_rank(listener, world, challenge);
		uint64_t asked = bytes_le64(challenge + 12);
		write_proof(lie == OTHER_RUN ? other : world, asked + (lie == OTHER_CHALLENGE), 7,
			lie == OTHER_KEY ? other_key : key, proof);
		if (lie == SILENT)
			bootstrap_end(world->ranks[1]);
		else if (lie == AS_BEFORE) {
			/* Of a message, not of a proof. */
			struct words words = { .rank = 0, .size = 4, .key = key };
			write_words(run_number(world->run), &words);
			is_refused(dup(fd), words.bytes, sizeof words.bytes);
		} else {
			is_refused(dup(fd), lie == ECHO ? challenge : proof, GREETING);
		}
		world->ranks[1] = lie == SILENT ? NULL : world->ranks[1];
		if (lie != SILENT)
			await(world, 1, 0, false);
		assert_true(recv(fd, proof, 1, 0) <= 0);
		close(fd);
		close(listener);
		tear_down(world);
		free(other);
	}
}

/* And to rank 0, however its answer comes, all is told. */
static void a_proof_may_come_byte_by_byte(void **state)
{
	struct world *world = make_world();
	unsigned char challenge[GREETING], proof[GREETING], head[HEAD];
	int port;
	int listener = listen_any(run_port(run_number(world->run), 0), &port);
	begin_with(world, 1, 2, key);
	come(world, 1, 0);
	int fd = accept_rank(listener, world, challenge);
	write_proof(world, bytes_le64(challenge + 12), 7, key, proof);
	trickle(fd, proof, sizeof proof);
	receive(fd, head, sizeof head);
	assert_memory_equal(head, "MGA2\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\12\0\0\0", 24);
	close(fd);
	close(listener);
	await(world, 1, 0, false); /* for want of an answer */
	tear_down(world);
}

/* More than rank 0 keeps: some silent, some that say half a word, some gone at once. */
static void strangers_keep_nobody_from_meeting(void **state)
{
	struct world *world = make_world();
	int strangers[150];
	begin_with(world, 0, WORLD, key);
	for (size_t i = 0; i < 150; i++) {
		strangers[i] = call(world);
		if (i % 3 == 1)
			(void)!send(strangers[i], "MGC2", 4, MSG_NOSIGNAL);
		if (i % 3 == 2)
			close(strangers[i]);
	}
	for (int rank = 0; rank < WORLD; rank++) {
		if (rank > 0)
			begin_with(world, rank, WORLD, key);
		come(world, rank, 0);
	}
	for (int rank = 0; rank < WORLD; rank++) {
		await(world, rank, 0, true);
		has_all(world, rank, WORLD, 0);
	}
	for (size_t i = 0; i < 150; i++)
		if (i % 3 != 2)
			close(strangers[i]);
	tear_down(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_get_what_all_came_with),
		cmocka_unit_test(passing_values_are_forgotten),
		cmocka_unit_test(what_comes_in_crumbs_is_whole),
		cmocka_unit_test(the_largest_world),
		cmocka_unit_test(nobody_has_met_before_the_last_has_come),
		cmocka_unit_test(a_rank_that_is_gone),
		cmocka_unit_test(too_much_is_not_sent),
		cmocka_unit_test(a_port_that_is_taken),
		cmocka_unit_test(challenges_that_are_none),
		cmocka_unit_test(messages_that_are_none),
		cmocka_unit_test(a_message_belongs_to_its_connection),
		cmocka_unit_test(rank_0_without_a_descriptor),
		cmocka_unit_test(who_does_not_prove_to_be_rank_0_is_told_nothing),
		cmocka_unit_test(a_proof_may_come_byte_by_byte),
		cmocka_unit_test(strangers_keep_nobody_from_meeting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
