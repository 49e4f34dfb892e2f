/* SPDX-License-Identifier: Apache-2.0 */
/* gathering: worlds of ranks in one process, over loopback, and strangers among them. */
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
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/siphash.h"
#include "launch/gathering.h"
#include "launch/run_key.h"

#define WORLD 9
#define FENCES 4
#define HEAD 32
#define TAG 8

static const unsigned char key[16] = "sixteen bytes or", other_key[16] = "sixteen other  b";

enum news { NONE, MET, FAILED };

struct world {
	char run[64];
	struct gathering *ranks[GATHERING_WORLD_MAX];
	atomic_int news[FENCES][GATHERING_WORLD_MAX];
};

static void set_up(struct world *world)
{
	static int runs;
	memset(world, 0, sizeof *world);
	snprintf(world->run, sizeof world->run, "test.%d.%d", (int)getpid(), runs++);
}

static void begin_with(struct world *world, int rank, int size, const unsigned char *with)
{
	struct err err;
	const struct gathering_plan plan = { .rank = rank, .world_size = size, .node = rank % 2 ? "localhost" : NULL,
		.run = world->run };
	world->ranks[rank] = gathering_begin(&plan, &err);
	if (!world->ranks[rank])
		fail_msg("%s", err.text);
	if (with)
		gathering_set_key(world->ranks[rank], with);
}

static void on_met(void *arg, bool all)
{
	assert_int_equal(atomic_exchange((atomic_int *)arg, all ? MET : FAILED), NONE);
}

/* Each rank's bytes differ in content and length from every other's, and from those of any other fence. */
static size_t bytes_of(int rank, int fence, unsigned char *out)
{
	size_t size = rank == 2 ? 0 : rank == 3 ? 700000 + (size_t)fence : (size_t)rank * 10 + (size_t)fence;
	for (size_t i = 0; i < size; i++)
		out[i] = (unsigned char)(i * 7 + (size_t)rank * 31 + (size_t)fence);
	return size;
}

static void come(struct world *world, int rank, int fence)
{
	unsigned char *bytes = malloc(1 << 20);
	size_t size = bytes_of(rank, fence, bytes);
	gathering_come(world->ranks[rank], bytes, size, on_met, &world->news[fence][rank]);
	free(bytes);
}

static void await(struct world *world, int rank, int fence, enum news wanted)
{
	struct deadline deadline = deadline_in(20);
	while (atomic_load(&world->news[fence][rank]) == NONE && deadline_sleep(deadline, 0.001))
		;
	if ((enum news)atomic_load(&world->news[fence][rank]) != wanted)
		fail_msg("rank %d at fence %d: %d, not %d", rank, fence, atomic_load(&world->news[fence][rank]), (int)wanted);
}

static void has_all(struct world *world, int rank, int size, int fence)
{
	unsigned char *bytes = malloc(1 << 20);
	assert_true(gathering_complete(world->ranks[rank]) > (uint32_t)fence);
	for (int peer = 0; peer < size; peer++) {
		size_t got, wanted = bytes_of(peer, fence, bytes);
		const unsigned char *at = gathering_bytes(world->ranks[rank], (uint32_t)fence, peer, &got);
		assert_int_equal(got, wanted);
		assert_memory_equal(at, bytes, wanted);
	}
	free(bytes);
}

static void tear_down(struct world *world)
{
	for (int rank = GATHERING_WORLD_MAX - 1; rank >= 0; rank--)
		gathering_end(world->ranks[rank]);
}

/* Whoever is first; the ranks go through their fences at their own pace. */
static void all_get_what_all_came_with(void **state)
{
	for (int first = 0; first < 3; first++) {
		struct world world;
		set_up(&world);
		for (int i = 0; i < WORLD; i++) {
			begin_with(&world, (first + i) % WORLD, WORLD, first == 1 ? NULL : key);
			come(&world, (first + i) % WORLD, 0);
		}
		/* The key may come behind the first fence. */
		for (int rank = WORLD - 1; rank >= 0 && first == 1; rank--)
			gathering_set_key(world.ranks[rank], key);
		for (int fence = 0; fence < FENCES; fence++)
			for (int rank = 0; rank < WORLD; rank++) {
				await(&world, rank, fence, MET);
				has_all(&world, rank, WORLD, fence);
				if (fence + 1 < FENCES)
					come(&world, rank, fence + 1);
			}
		for (int fence = 0; fence < FENCES; fence++)
			has_all(&world, first, WORLD, fence);
		tear_down(&world);
	}
}

static void the_largest_world(void **state)
{
	struct world world;
	struct err err;
	set_up(&world);
	for (int rank = 0; rank < GATHERING_WORLD_MAX; rank++) {
		begin_with(&world, rank, GATHERING_WORLD_MAX, key);
		come(&world, rank, 0);
	}
	for (int rank = 0; rank < GATHERING_WORLD_MAX; rank++) {
		await(&world, rank, 0, MET);
		has_all(&world, rank, GATHERING_WORLD_MAX, 0);
	}
	tear_down(&world);
	const struct gathering_plan plan = { .world_size = GATHERING_WORLD_MAX + 1, .run = world.run };
	assert_null(gathering_begin(&plan, &err));
	assert_non_null(strstr(err.text, "65 ranks"));
}

static void nobody_has_met_before_the_last_has_come(void **state)
{
	struct world world;
	set_up(&world);
	for (int rank = 0; rank < 4; rank++)
		begin_with(&world, rank, 4, key);
	for (int rank = 0; rank < 3; rank++)
		come(&world, rank, 0);
	deadline_sleep(deadline_in(60), 0.1);
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(atomic_load(&world.news[0][rank]), NONE);
		assert_int_equal(gathering_complete(world.ranks[rank]), 0);
	}
	come(&world, 3, 0);
	for (int rank = 0; rank < 4; rank++)
		await(&world, rank, 0, MET);
	/* Who ends without having met is told so, once. */
	come(&world, 1, 1);
	tear_down(&world);
	await(&world, 1, 1, FAILED);
}

/* What a rank has been told of is not taken back by the end of another. */
static void a_rank_that_is_gone(void **state)
{
	struct world world;
	set_up(&world);
	for (int rank = 0; rank < 4; rank++) {
		begin_with(&world, rank, 4, key);
		come(&world, rank, 0);
	}
	for (int rank = 0; rank < 4; rank++)
		await(&world, rank, 0, MET);
	gathering_end(world.ranks[3]);
	world.ranks[3] = NULL;
	come(&world, 0, 1);
	await(&world, 0, 1, FAILED);
	/* And without rank 0 nobody meets, now or later. */
	gathering_end(world.ranks[0]);
	world.ranks[0] = NULL;
	come(&world, 1, 1);
	await(&world, 1, 1, FAILED);
	come(&world, 1, 2);
	await(&world, 1, 2, FAILED);
	has_all(&world, 1, 4, 0);
	tear_down(&world);
}

static void too_much_is_not_sent(void **state)
{
	struct world world;
	set_up(&world);
	unsigned char *much = calloc(1, GATHERING_BYTES_MAX + 1);
	for (int rank = 0; rank < 2; rank++) {
		begin_with(&world, rank, 2, key);
		gathering_come(world.ranks[rank], much, GATHERING_BYTES_MAX + 1, on_met, &world.news[0][rank]);
		await(&world, rank, 0, FAILED);
	}
	free(much);
	tear_down(&world);
}

static void a_port_that_is_taken(void **state)
{
	struct world world;
	struct err err;
	char port[20];
	set_up(&world);
	begin_with(&world, 0, 2, NULL);
	const struct gathering_plan plan = { .world_size = 2, .run = world.run };
	assert_null(gathering_begin(&plan, &err));
	snprintf(port, sizeof port, "port %d (TCP)", run_port(run_number(world.run), 0));
	assert_non_null(strstr(err.text, port));
	tear_down(&world);
}

/* ---- strangers ---- */

static int call(const struct world *world)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)run_port(run_number(world->run), 0)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
	return fd;
}

struct words {
	unsigned char bytes[HEAD + 4 + TAG];
	uint32_t rank, fence, size;
	const unsigned char *key;
};

/* A message with a body of 4 bytes, whatever its head says. */
static void write_words(const struct world *world, struct words *words)
{
	memcpy(words->bytes, "MGA1", 4);
	bytes_put_le64(words->bytes + 4, run_number(world->run));
	bytes_put_le32(words->bytes + 12, words->rank);
	bytes_put_le32(words->bytes + 16, words->fence);
	bytes_put_le32(words->bytes + 20, words->size);
	bytes_put_le64(words->bytes + 24, siphash(words->key, words->bytes, 24));
	memcpy(words->bytes + HEAD, "word", 4);
	bytes_put_le64(words->bytes + HEAD + 4, siphash(words->key, words->bytes, HEAD + 4));
}

/* Whether rank 0 ends the connection over what it is sent. */
static void is_refused(const struct world *world, const void *bytes, size_t size)
{
	char answer;
	int fd = call(world);
	struct timeval limit = { .tv_sec = 10 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
	if (recv(fd, &answer, 1, 0) > 0)
		fail_msg("it was answered");
	assert_true(errno != EAGAIN);
	close(fd);
}

static void messages_that_are_none(void **state)
{
	struct world world;
	set_up(&world);
	begin_with(&world, 0, 4, key);
	const struct words wrong[] = {
		{ .rank = 1, .size = 4, .key = other_key },
		{ .rank = 0, .size = 4, .key = key }, /* as rank 0 itself */
		{ .rank = 4, .size = 4, .key = key },
		{ .rank = 1, .fence = 1, .size = 4, .key = key },
		{ .rank = 1, .size = GATHERING_BYTES_MAX + 1, .key = key },
		{ .rank = 1, .size = UINT32_MAX, .key = key },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct words words = wrong[i];
		write_words(&world, &words);
		errno = 0;
		is_refused(&world, words.bytes, HEAD);
	}
	struct words words = { .rank = 1, .size = 4, .key = key };
	for (size_t byte = 0; byte < sizeof words.bytes; byte += 3) {
		write_words(&world, &words);
		words.bytes[byte] ^= 0x10;
		errno = 0;
		is_refused(&world, words.bytes, byte < HEAD ? HEAD : sizeof words.bytes);
		/* Each connection that has said who it is counts as that rank's. */
		if (byte >= HEAD)
			break;
	}
	tear_down(&world);
}

/* More than rank 0 keeps: some silent, some that say half a word, some gone at once. */
static void strangers_keep_nobody_from_meeting(void **state)
{
	struct world world;
	int strangers[150];
	set_up(&world);
	begin_with(&world, 0, WORLD, key);
	for (size_t i = 0; i < 150; i++) {
		strangers[i] = call(&world);
		if (i % 3 == 1)
			(void)!send(strangers[i], "MGA1", 4, MSG_NOSIGNAL);
		if (i % 3 == 2)
			close(strangers[i]);
	}
	for (int rank = 0; rank < WORLD; rank++) {
		if (rank > 0)
			begin_with(&world, rank, WORLD, key);
		come(&world, rank, 0);
	}
	for (int rank = 0; rank < WORLD; rank++) {
		await(&world, rank, 0, MET);
		has_all(&world, rank, WORLD, 0);
	}
	for (size_t i = 0; i < 150; i++)
		if (i % 3 != 2)
			close(strangers[i]);
	tear_down(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_get_what_all_came_with),
		cmocka_unit_test(the_largest_world),
		cmocka_unit_test(nobody_has_met_before_the_last_has_come),
		cmocka_unit_test(a_rank_that_is_gone),
		cmocka_unit_test(too_much_is_not_sent),
		cmocka_unit_test(a_port_that_is_taken),
		cmocka_unit_test(messages_that_are_none),
		cmocka_unit_test(strangers_keep_nobody_from_meeting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
