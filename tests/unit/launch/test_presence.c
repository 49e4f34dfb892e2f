/* SPDX-License-Identifier: Apache-2.0 */
/* presence: worlds of ranks in one process, over loopback. Datagrams go through a sendto of this
 * file, which counts them and loses as many as it is told to. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/hash.h"
#include "launch/presence.h"
#include "tests/unit/hang.h"
#include "tests/unit/ports.h"

#define WORLD_MAX 200
#define WORLD 21
#define KEY "00112233445566778899aabbccddeeff"

static atomic_long sent;
static atomic_int lost_of_ten;

ssize_t sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to,
	socklen_t length)
{
	static atomic_uint turn;
	atomic_fetch_add(&sent, 1);
	/* In no order that calls and answers might have. */
	if ((int)((atomic_fetch_add(&turn, 1) * 2654435761u >> 16) % 10) < atomic_load(&lost_of_ten))
		return (ssize_t)size;
	return syscall(SYS_sendto, fd, bytes, size, flags, to, length);
}

struct world {
	int size;
	char run[64];
	const char *key;
	struct presence *rolls[WORLD_MAX];
};

/* All on one node; a run of its own each time, so that no earlier world's ports and messages are
 * met. */
static void set_up(struct world *world, int size, const char *key)
{
	static int runs;
	*world = (struct world) { .size = size, .key = key };
	do
		snprintf(world->run, sizeof world->run, "test.%d.%d 0 %d", (int)getpid(), runs++, size);
	while (!key && !ports_are_free(world->run, size, SOCK_DGRAM));
	atomic_store(&lost_of_ten, 0);
}

static struct presence *begin(const struct world *world, int rank, struct err *err)
{
	char nodes[WORLD_MAX][RDZV_NODE_SIZE];
	for (int i = 0; i < world->size; i++)
		snprintf(nodes[i], sizeof nodes[i], "here");
	struct presence_plan plan = { .rank = rank,
		.world_size = world->size,
		.nodes = nodes,
		.run = { .number = run_number(world->run), .keyed = world->key } };
	if (world->key)
		assert_int_equal(run_key_read(world->key, plan.run.key, NULL), 0);
	return presence_begin(&plan, err);
}

static void come(struct world *world, int rank, uint32_t fence)
{
	struct err err = { 0 };
	if (!world->rolls[rank])
		world->rolls[rank] = begin(world, rank, &err);
	if (!world->rolls[rank])
		fail_msg("%s", err.text);
	presence_reach(world->rolls[rank], fence);
}

static void tear_down(struct world *world)
{
	for (int rank = 0; rank < world->size; rank++)
		presence_end(world->rolls[rank]);
}

/* Whether a rank knows of exactly those that `here` has. */
static bool knows(const struct world *world, int rank, uint32_t fence, const bool *here)
{
	bool seen[WORLD_MAX] = { false };
	int count = 0, expected = 0;
	count = presence_mark(world->rolls[rank], fence, seen);
	for (int i = 0; i < world->size; i++)
		expected += here[i];
	return count == expected && memcmp(seen, here, (size_t)world->size) == 0;
}

/* Until all ranks of `here` know that exactly these have come. */
static void await(const struct world *world, uint32_t fence, const bool *here)
{
	struct deadline deadline = deadline_in(HANG_SECONDS);
	for (int rank = 0; rank < world->size;) {
		if (!here[rank] || knows(world, rank, fence, here))
			rank++;
		else if (!deadline_sleep(deadline, 0.01))
			fail_msg("rank %d does not know who has come to fence %u", rank, fence);
	}
}

static void all_but(struct world *world, bool *here, int absent)
{
	for (int rank = 0; rank < world->size; rank++)
		here[rank] = rank != absent;
	for (int rank = 0; rank < world->size; rank++)
		if (here[rank])
			come(world, rank, 0);
}

static void those_who_have_come_are_known(void **state)
{
	bool here[WORLD_MAX];
	for (int keyed = 0; keyed < 2; keyed++)
		for (int lost = 0; lost < 5; lost += 4) {
			struct world world;
			set_up(&world, WORLD, keyed ? KEY : NULL);
			atomic_store(&lost_of_ten, lost);
			all_but(&world, here, 13);
			await(&world, 0, here);
			come(&world, 13, 0);
			here[13] = true;
			await(&world, 0, here);
			tear_down(&world);
		}
}

static void who_comes_late_is_known(void **state)
{
	struct world world;
	bool here[WORLD_MAX];
	set_up(&world, WORLD, NULL);
	all_but(&world, here, 20);
	await(&world, 0, here);
	/* So that the pauses are long. */
	deadline_sleep(deadline_in(60), 2);
	await(&world, 0, here);
	come(&world, 20, 0);
	here[20] = true;
	await(&world, 0, here);
	tear_down(&world);
}

static void a_later_fence_counts_for_an_earlier_one(void **state)
{
	struct world world;
	bool here[WORLD_MAX], ahead[WORLD_MAX] = { false };
	set_up(&world, 5, KEY);
	all_but(&world, here, -1);
	await(&world, 0, here);
	for (int rank = 2; rank < 5; rank++) {
		come(&world, rank, 2);
		ahead[rank] = true;
	}
	await(&world, 1, ahead);
	await(&world, 2, ahead);
	await(&world, 0, here);
	come(&world, 0, 1);
	ahead[0] = true;
	await(&world, 1, ahead);
	ahead[0] = false;
	await(&world, 2, ahead);
	tear_down(&world);
}

/* ---- strangers ---- */

#define SIZE (24 + (WORLD + 7) / 8 + 8)

/* A datagram as doc/presence.md has it: `sender` says that all but rank 0 have come. */
static void write_claim(const struct world *world, uint32_t sender, unsigned char *message)
{
	memset(message, 0, SIZE);
	memcpy(message, "MRC1", 4);
	bytes_put_le64(message + 4, hash_bytes(world->run, strlen(world->run)).low);
	bytes_put_le32(message + 12, sender);
	for (int rank = 1; rank < WORLD; rank++)
		message[24 + rank / 8] |= (unsigned char)(1 << rank % 8);
}

/* From a port (0: any) to rank 0. */
static void tell(const struct world *world, int port, const unsigned char *message, size_t size)
{
	struct sockaddr_in from = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) },
					   to = from;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	from.sin_addr.s_addr = to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	to.sin_port = htons((uint16_t)presence_port(world->rolls[0], 0));
	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
	assert_int_equal(syscall(SYS_sendto, fd, message, size, 0, &to, sizeof to), size);
	close(fd);
}

static void others_are_not_believed(void **state)
{
	for (int keyed = 0; keyed < 2; keyed++) {
		struct world world;
		unsigned char message[SIZE + 1] = { 0 }, good[SIZE];
		bool alone[WORLD_MAX] = { true }, all[WORLD_MAX];
		memset(all, true, sizeof all);
		set_up(&world, WORLD, keyed ? KEY : NULL);
		come(&world, 0, 0);
		int port = presence_port(world.rolls[0], 3);
		write_claim(&world, 3, good);
		const struct {
			size_t size;
			int at, with, port;
		} wrong[] = {
			{ SIZE, 0, 0, 0 },                               /* another's port */
			{ SIZE, 0, 0, port + 1 }, { SIZE, 12, 7, port }, /* for another rank */
			{ SIZE, 15, 0x80, port },                        /* for one that there is not */
			{ SIZE - 1, 0, 0, port }, { SIZE + 1, 0, 0, port }, { 3, 0, 0, port },
			{ SIZE, 0, 1, port }, { SIZE, 3, 7, port }, { SIZE, 4, 1, port },
			{ SIZE, 11, 0x80, port }, { SIZE, 20, 2, port }, { SIZE, 23, 1, port },
			{ SIZE, 24 + WORLD / 8, 0x80, port }, /* a rank after the last */
			{ SIZE, SIZE - 1, 1, port },          /* a tag */
		};
		for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
			memcpy(message, good, SIZE);
			message[wrong[i].at] ^= (unsigned char)wrong[i].with;
			tell(&world, wrong[i].port, message, wrong[i].size);
		}
		/* With a key not even from the right port. */
		if (keyed)
			tell(&world, port, good, SIZE);
		deadline_sleep(deadline_in(60), 0.3);
		assert_true(knows(&world, 0, 0, alone));
		struct deadline deadline = deadline_in(HANG_SECONDS);
		if (!keyed)
			tell(&world, port, good, SIZE);
		while (!keyed && !knows(&world, 0, 0, all))
			assert_true(deadline_sleep(deadline, 0.01));
		tear_down(&world);
	}
}

static void ranks_with_another_key_are_strangers(void **state)
{
	struct world world;
	bool alone[WORLD_MAX] = { true };
	set_up(&world, 3, KEY);
	come(&world, 0, 0);
	world.key = NULL;
	come(&world, 1, 0);
	world.key = "ff112233445566778899aabbccddeeff";
	come(&world, 2, 0);
	deadline_sleep(deadline_in(60), 0.5);
	assert_true(knows(&world, 0, 0, alone));
	tear_down(&world);
}

/* ---- what can't be had ---- */

static void a_port_that_is_taken(void **state)
{
	struct world world;
	struct err err;
	bool here[WORLD_MAX];
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	set_up(&world, WORLD, NULL);
	come(&world, 0, 0);
	address.sin_port = htons((uint16_t)presence_port(world.rolls[0], 4));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_null(begin(&world, 4, &err));
	assert_non_null(strstr(err.text, "couldn't listen on port"));
	tear_down(&world);
	close(fd);

	set_up(&world, WORLD, KEY);
	come(&world, 0, 0);
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	address.sin_port = htons((uint16_t)presence_port(world.rolls[0], 4));
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	all_but(&world, here, -1);
	await(&world, 0, here);
	tear_down(&world);
	close(fd);
}

static void plans_that_are_refused(void **state)
{
	static const char *const keys[] = { "", "1", "00112233445566778899aabbccddeef",
		/* NOLINTNEXTLINE(bugprone-suspicious-missing-comma): a key and a digit more */
		"00112233445566778899AABBCCDDEEFF", KEY "0" };
	struct err err = { 0 };
	unsigned char key[16];
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		assert_int_equal(run_key_read(keys[i], key, &err), -1);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, "MUSTER_STEP_KEY"));
	}
	assert_null(
		presence_begin(&(struct presence_plan) { .world_size = PRESENCE_WORLD_MAX + 1 }, &err));
	assert_non_null(strstr(err.text, "8193 ranks"));
	bool seen[2] = { false, true };
	presence_reach(NULL, 0);
	assert_int_equal(presence_mark(NULL, 0, seen), 0);
	assert_true(!seen[0] && seen[1] && !presence_is_keyed(NULL));
	presence_end(NULL);
}

/* A large world learns of all in a number of datagrams that does not grow with it. */
static void few_datagrams_are_enough(void **state)
{
	struct world world;
	bool here[WORLD_MAX];
	set_up(&world, WORLD_MAX, KEY);
	atomic_store(&sent, 0);
	double begun = clock_now();
	all_but(&world, here, 77);
	await(&world, 0, here);
	double each = (double)atomic_load(&sent) / WORLD_MAX, seconds = clock_now() - begun;
	print_message("# %d ranks know of each other after %.2f s and %.1f datagrams a rank\n",
		WORLD_MAX, seconds, each);
	/* Three calls a round, each answered; a world of this size has a round each 0.078 s, one at
	 * once, and one may be under way. */
	assert_true(each < 6 * (2 + seconds / 0.078));
	/* Then they call with longer and longer pauses; and not at all once the last has come. */
	deadline_sleep(deadline_in(60), 1);
	long before = atomic_load(&sent);
	begun = clock_now();
	deadline_sleep(deadline_in(60), 1);
	seconds = clock_now() - begun;
	assert_true((double)(atomic_load(&sent) - before) < 3 * 2 * 5 * WORLD_MAX * seconds);
	come(&world, 77, 0);
	here[77] = true;
	await(&world, 0, here);
	struct deadline hang = deadline_in(HANG_SECONDS);
	do {
		before = atomic_load(&sent);
		assert_true(deadline_sleep(hang, 1));
	} while (atomic_load(&sent) != before);
	tear_down(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_who_have_come_are_known),
		cmocka_unit_test(who_comes_late_is_known),
		cmocka_unit_test(a_later_fence_counts_for_an_earlier_one),
		cmocka_unit_test(others_are_not_believed),
		cmocka_unit_test(ranks_with_another_key_are_strangers),
		cmocka_unit_test(a_port_that_is_taken),
		cmocka_unit_test(plans_that_are_refused),
		cmocka_unit_test(few_datagrams_are_enough),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
