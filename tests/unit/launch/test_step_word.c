/* SPDX-License-Identifier: Apache-2.0 */
/* Words of ranks: in a world of any size all ranks hear the same of each step, also when one of
 * them is slow, and no rank is more than a step ahead; and rank 0 gets what they give in between. A
 * rank that leaves or does not come is named. Strangers change nothing. */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
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

#include "launch/step_word.h"
#include "tests/tools/partial_io.h"
#include "tests/unit/hang.h"

#define RANKS_MAX 1200
#define STEPS 40

/* A rank of the world: a thread of this process. */
struct rank {
	int number;
	struct step_word *word;
	pthread_t thread;
	atomic_uint_fast64_t said; /* words */
	enum step_word_end end;    /* of the last wait */
	int named;
	bool wrong; /* it heard something else than was said, or was too far ahead */
};

static struct rank ranks[RANKS_MAX];
static int world;
static struct {
	int leaves, stalls, slow; /* ranks; -1: none */
	bool closes;              /* each, once it has heard the last word */
	double seconds;           /* of each wait */
} how;

/* The flags that a rank sets after a step: few set any. */
static uint64_t flags_of(int rank, uint64_t step)
{
	uint64_t number = (uint64_t)rank * 7919 + step * 104729;
	return number % 13 == 0 ? UINT64_C(1) << number % 61 : 0;
}

static bool is_right(const struct step_word_sum *sum, uint64_t step)
{
	struct step_word_sum wanted = { 0, -1 };
	for (int rank = world - 1; rank >= 0; rank--)
		if (flags_of(rank, step)) {
			wanted.flags |= flags_of(rank, step);
			wanted.rank = rank;
		}
	return sum->flags == wanted.flags && sum->rank == wanted.rank;
}

static void check_said(struct rank *self, uint64_t words)
{
	for (int rank = 0; rank < world; rank++)
		if (atomic_load(&ranks[rank].said) < words)
			self->wrong = true;
}

static void wait_for(struct rank *self, uint64_t step)
{
	struct step_word_sum sum;
	self->end = step_word_wait(self->word, step, deadline_in(how.seconds), &sum, &self->named);
	if (self->end != STEP_WORD_HEARD)
		return;
	self->wrong |= !is_right(&sum, step);
	check_said(self, step + 1);
}

/* ---- what the ranks give ---- */

/* From nothing to more than a socket takes at once. */
static uint64_t size_of(int rank, uint64_t step)
{
	uint64_t number = (uint64_t)rank * 31 + step;
	return number % 3 == 0 ? 0 : number % 97 == 1 ? 700000 : number % 500;
}

static unsigned char byte_of(int rank, uint64_t step, uint64_t i)
{
	return (unsigned char)((uint64_t)rank * 7 + step * 3 + i + i / 255);
}

static bool is_given(const struct step_word_data *data, int rank, uint64_t step)
{
	bool right = data->rank == rank && data->size == size_of(rank, step);
	for (uint64_t i = 0; right && i < data->size; i++)
		right = data->bytes[i] == byte_of(rank, step, i);
	return right;
}

/* All ranks give; rank 0 gets it, and no other has gone on before. */
static void gather(struct rank *self, uint64_t step)
{
	struct step_word_data **all;
	struct err err;
	const uint64_t size = size_of(self->number, step);
	unsigned char *bytes = malloc(size + 1);
	for (uint64_t i = 0; i < size; i++)
		bytes[i] = byte_of(self->number, step, i);
	int rc = step_word_give(self->word, bytes, size, &err);
	free(bytes);
	self->end = step_word_gathered(self->word, deadline_in(how.seconds), &all, &self->named);
	if (rc < 0 || self->end != STEP_WORD_HEARD)
		return;
	self->wrong |= (all != NULL) != (self->number == 0);
	for (int rank = 0; rank < world && all; rank++) {
		self->wrong |= !is_given(all[rank], rank, step);
		free(all[rank]);
	}
	free(all);
	check_said(self, step);
}

static void *live(void *arg)
{
	struct rank *self = arg;
	for (uint64_t step = 0; step < STEPS && self->end == STEP_WORD_HEARD; step++) {
		if (self->number == how.leaves && step == STEPS / 2)
			break;
		if (self->number == how.stalls && step == STEPS / 2)
			return NULL; /* its connections stay */
		if (self->number == how.slow)
			usleep(2000);
		atomic_fetch_add(&self->said, 1);
		step_word_say(self->word, flags_of(self->number, step));
		if (step > 0)
			wait_for(self, step - 1);
		if (self->end == STEP_WORD_HEARD && step % 4 == 1)
			gather(self, step);
	}
	if (self->end == STEP_WORD_HEARD && self->number != how.leaves)
		wait_for(self, STEPS - 1);
	if (self->number == how.leaves || how.closes) {
		step_word_close(self->word);
		self->word = NULL;
	}
	return NULL;
}

static void open_world(int size)
{
	struct err err;
	world = size;
	for (int i = 0; i < size; i++) {
		ranks[i] = (struct rank) { .number = i, .named = -1 };
		ranks[i].word = step_word_open(i, size, "127.0.0.1", &err);
		if (!ranks[i].word)
			fail_msg("%s", err.text);
	}
}

static void run_world(void)
{
	struct err err;
	for (int i = 0; i < world; i++) {
		const char *place = i > 0 ? step_word_place(ranks[step_word_parent(i)].word) : NULL;
		if (step_word_begin(ranks[i].word, place, &err) < 0)
			fail_msg("%s", err.text);
	}
	for (int i = 0; i < world; i++)
		assert_int_equal(pthread_create(&ranks[i].thread, NULL, live, &ranks[i]), 0);
	for (int i = 0; i < world; i++)
		pthread_join(ranks[i].thread, NULL);
}

static void close_world(void)
{
	for (int i = 0; i < world; i++) {
		assert_false(ranks[i].wrong);
		step_word_close(ranks[i].word);
	}
}

static int setup(void **state)
{
	how.leaves = how.stalls = how.slow = -1;
	how.seconds = HANG_SECONDS;
	how.closes = partial_io_everywhere = false;
	return 0;
}

/* A world of that size, to its end. */
static void all_hear(int size)
{
	open_world(size);
	run_world();
	for (int rank = 0; rank < world; rank++)
		if (ranks[rank].end != STEP_WORD_HEARD)
			fail_msg("rank %d of %d: %d, %d", rank, world, (int)ranks[rank].end, ranks[rank].named);
	close_world();
}

static void all_hear_the_same_of_each_step(void **state)
{
	static const int sizes[] = { 1, 2, 3, 33, 34, 100, 1100 };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		how.slow = sizes[i] / 2;
		all_hear(sizes[i]);
	}
}

/* Also where the network takes what is sent byte by byte: who has heard the last word leaves only
 * when those below have been sent it. */
static void all_hear_the_last_word_of_ranks_that_leave(void **state)
{
	static const int sizes[] = { 2, 3, 34 };
	how.closes = partial_io_everywhere = true;
	for (size_t i = 0; i < 20 * sizeof sizes / sizeof sizes[0]; i++)
		all_hear(sizes[i % 3]);
}

/* A leaf, an inner rank, and rank 0. */
static void who_leaves_is_named_to_all(void **state)
{
	static const int leavers[] = { 99, 2, 0 };
	for (size_t i = 0; i < sizeof leavers / sizeof leavers[0]; i++) {
		how.leaves = leavers[i];
		open_world(100);
		run_world();
		for (int rank = 0; rank < world; rank++)
			if (rank != how.leaves
				&& (ranks[rank].end != STEP_WORD_LOST || ranks[rank].named != how.leaves))
				fail_msg("rank %d: %d, rank %d", rank, (int)ranks[rank].end, ranks[rank].named);
		close_world();
	}
}

static void who_does_not_come_is_named_to_all(void **state)
{
	static const int stallers[] = { 99, 2, 0 };
	how.seconds = HANG_SECONDS / 20; /* which passes in vain */
	for (size_t i = 0; i < sizeof stallers / sizeof stallers[0]; i++) {
		how.stalls = stallers[i];
		open_world(100);
		run_world();
		for (int rank = 0; rank < world; rank++)
			if (rank != how.stalls
				&& (ranks[rank].end != STEP_WORD_LATE || ranks[rank].named != how.stalls))
				fail_msg("rank %d: %d, rank %d", rank, (int)ranks[rank].end, ranks[rank].named);
		close_world();
	}
}

static int dial(const char *place)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	char address[64];
	int port, fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(sscanf(place, "%63s %d", address, &port), 2);
	assert_int_equal(inet_pton(AF_INET, address, &at.sin_addr), 1);
	at.sin_port = htons((uint16_t)port);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
	return fd;
}

static void strangers_change_nothing(void **state)
{
	char noise[4096];
	int fds[20];
	open_world(40);
	for (size_t i = 0; i < sizeof noise; i++)
		noise[i] = (char)(i * 37);
	memcpy(noise, "MCL1", 4);
	for (int i = 0; i < 20; i++) {
		fds[i] = dial(step_word_place(ranks[i % 2].word));
		if (i % 3)
			assert_true(send(fds[i], noise, sizeof noise - (size_t)i * 200, MSG_NOSIGNAL) > 0);
	}
	run_world();
	for (int rank = 0; rank < world; rank++)
		assert_int_equal(ranks[rank].end, STEP_WORD_HEARD);
	close_world();
	for (int i = 0; i < 20; i++)
		close(fds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(all_hear_the_same_of_each_step, setup),
		cmocka_unit_test_setup(all_hear_the_last_word_of_ranks_that_leave, setup),
		cmocka_unit_test_setup(who_leaves_is_named_to_all, setup),
		cmocka_unit_test_setup(who_does_not_come_is_named_to_all, setup),
		cmocka_unit_test_setup(strangers_change_nothing, setup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
