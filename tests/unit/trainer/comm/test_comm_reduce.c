/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions of the communicator: sums that travel while they are made, and what goes ahead of
 * them. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/trainer/comm/summing.h"
#include "tests/unit/trainer/comm/world_fixture.h"

#define MEGABYTE ((size_t)1 << 20)

static int body_reduce(struct comm *comm, void *arg, struct err *err)
{
	static const size_t sizes[] = { 1, 1000, MEGABYTE / 8, 0, 3 * MEGABYTE / 8 + 17, 5 };

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct summing s = make_summing(comm, sizes[i]);

		if (comm_wait(comm, queue_sums(comm, &s, "sums", NULL, add_run), err) < 0)
			return -1;
		if (verify_sums(&s, err) < 0)
			return -1;
		free(s.numbers);
		free(s.received);
	}
	return 0;
}

static void test_reduce(void **state)
{
	for (int size = 1; size <= 4; size++)
		world_run_ok(size, body_reduce, NULL);
}

#define QUEUED 12

static void fill_numbers(void *arg)
{
	struct summing *s = arg;

	for (size_t i = 0; i < (size_t)s->world * s->size; i++)
		s->numbers[i] = number_of(s->me, (int)(i / s->size), i % s->size);
}

/* Each rank's number to each other, nothing to be made of them. */
static comm_ticket queue_pieces(struct comm *comm, const int *number, int *numbers)
{
	struct comm_transfer pieces[2 * WORLD_MAX];
	int count = 0;

	for (int peer = 0; peer < comm_size(comm); peer++) {
		if (peer == comm_rank(comm))
			continue;
		pieces[count++] =
			(struct comm_transfer) { peer, (void *)(uintptr_t)number, sizeof *number, 0 };
		pieces[count++] = (struct comm_transfer) { peer, &numbers[peer], sizeof *numbers, 1 };
	}
	return comm_reduce(comm, "pieces",
		&(struct comm_reduction) { .pieces = pieces, .piece_count = count });
}

/* Queued at once, of all kinds, each begins while others are under way; all receive pieces in one
 * place. */
static int body_reduce_in_turn(struct comm *comm, void *arg, struct err *err)
{
	struct summing s[QUEUED];
	int world = comm_size(comm), me = comm_rank(comm), early[QUEUED][WORLD_MAX],
		all[QUEUED][WORLD_MAX];
	uint64_t *received = malloc((size_t)world * (MEGABYTE / 4 + QUEUED) * sizeof *received);
	comm_ticket last = 0;

	for (int i = 0; i < QUEUED; i++) {
		s[i] = make_summing(comm, (size_t)(i * 37 % 5) * MEGABYTE / 16 + (size_t)i);
		memset(s[i].numbers, 0, (size_t)world * s[i].size * sizeof *s[i].numbers);
		free(s[i].received);
		s[i].received = received;
	}
	for (int i = 0; i < QUEUED; i++) {
		if (i % 3 == 1)
			queue_pieces(comm, &me, early[i]);
		if (i % 5 == 3)
			comm_allgather(comm, "between", &me, all[i], sizeof me);
		last = queue_sums(comm, &s[i], "sums", fill_numbers, add_run);
	}
	if (comm_wait(comm, last, err) < 0)
		return -1;
	for (int i = 0; i < QUEUED; i++) {
		for (int peer = 0; peer < world; peer++)
			WORLD_CHECK((i % 3 != 1 || peer == me || early[i][peer] == peer)
				&& (i % 5 != 3 || all[i][peer] == peer));
		if (verify_sums(&s[i], err) < 0)
			return -1;
		free(s[i].numbers);
	}
	free(received);
	return 0;
}

static void test_reduce_in_turn(void **state)
{
	for (int size = 2; size <= 4; size++)
		world_run_ok(size, body_reduce_in_turn, NULL);
}

/* What a rank passes on of a sum is the sum, though its transfers are queued before that has come:
 * each sends its neighbour the segment after the neighbour's own. */
static comm_ticket pass_on(struct comm *comm, const struct summing *s, uint64_t *passed,
	comm_ticket after)
{
	const size_t bytes = s->size * sizeof *passed;
	int next = (s->me + 1) % s->world, before = (s->me + s->world - 1) % s->world;
	const struct comm_transfer transfers[] = {
		{ next, s->numbers + (size_t)((next + 1) % s->world) * s->size, bytes, 0 },
		{ before, passed, bytes, 1 },
	};

	return comm_reduce(comm, "passed on",
		&(struct comm_reduction) { .pieces = transfers, .piece_count = 2, .after = after });
}

static int body_pass_on(struct comm *comm, void *arg, struct err *err)
{
	int world = comm_size(comm), me = comm_rank(comm), number[QUEUED][WORLD_MAX];
	uint64_t *passed[QUEUED];
	struct summing s[QUEUED];
	comm_ticket last = 0, sums[QUEUED];

	for (int i = 0; i < QUEUED; i++) {
		s[i] = make_summing(comm, MEGABYTE / 16 + (size_t)i);
		passed[i] = calloc(s[i].size, sizeof *passed[i]);
	}
	for (int i = 0; i < QUEUED; i++) {
		sums[i] = queue_sums(comm, &s[i], "sums", NULL, add_run);
		queue_pieces(comm, &me, number[i]);
		last = i > 0 ? pass_on(comm, &s[i - 1], passed[i - 1], sums[i - 1]) : 0;
	}
	last = pass_on(comm, &s[QUEUED - 1], passed[QUEUED - 1], sums[QUEUED - 1]);
	if (comm_wait(comm, last, err) < 0)
		return -1;
	for (int i = 0; i < QUEUED; i++) {
		if (verify_sums(&s[i], err) < 0)
			return -1;
		WORLD_CHECK(memcmp(passed[i], s[i].numbers + (size_t)((me + 1) % world) * s[i].size,
						s[i].size * sizeof *passed[i])
			== 0);
		free(passed[i]);
		free(s[i].numbers);
		free(s[i].received);
	}
	return 0;
}

static void test_pass_on(void **state)
{
	for (int size = 2; size <= 4; size++)
		world_run_ok(size, body_pass_on, NULL);
}

static int tell[2]; /* a pipe */

static int add_and_tell(void *arg, size_t first, size_t bytes, struct err *err)
{
	(void)first, (void)bytes;
	WORLD_CHECK(*(const int *)arg == 1 && write(tell[1], "x", 1) == 1);
	return 0;
}

static int add_when_told(void *arg, size_t first, size_t bytes, struct err *err)
{
	char byte;

	WORLD_CHECK(first > 0 || read(tell[0], &byte, 1) == 1);
	return add_run(arg, first, bytes, err);
}

/* The last rank makes its sum only once the first has added what the second sent it ahead, while
 * both wait for that sum. */
static int body_ahead(struct comm *comm, void *arg, struct err *err)
{
	struct summing s = make_summing(comm, 1000);
	int me = comm_rank(comm), theirs = 0;
	comm_ticket last =
		queue_sums(comm, &s, "sums", NULL, me == s.world - 1 ? add_when_told : add_run);
	const struct comm_transfer piece = { !me, me ? &me : &theirs, sizeof me, !me };

	if (me < 2)
		last = comm_reduce(comm, "ahead",
			&(struct comm_reduction) { .pieces = &piece,
				.piece_count = 1,
				.add = add_and_tell,
				.arg = &theirs,
				.ahead = true });
	if (comm_wait(comm, last, err) < 0 || verify_sums(&s, err) < 0)
		return -1;
	free(s.numbers);
	free(s.received);
	return 0;
}

static void test_ahead(void **state)
{
	assert_int_equal(pipe(tell), 0);
	world_run_ok(3, body_ahead, NULL);
	close(tell[0]);
	close(tell[1]);
}

static int queued[2]; /* a pipe */

/* So that all is queued before any of it begins. */
static int hold(void *arg, struct err *err)
{
	char byte;

	(void)arg;
	WORLD_CHECK(read(queued[0], &byte, 1) == 1);
	return 0;
}

static void tell_begun(void *arg)
{
	*(bool *)arg = write(tell[1], "x", 1) == 1;
}

/* The last rank has no piece for the first one's sum until the first has begun what is queued after
 * it. */
static int body_begins_ahead(struct comm *comm, void *arg, struct err *err)
{
	struct summing s = make_summing(comm, 1000);
	int me = comm_rank(comm), theirs = 0;
	bool told = me != 0;
	char byte;
	const struct comm_transfer piece = { !me, me ? &me : &theirs, sizeof me, !me };

	WORLD_CHECK(me < 2 || read(tell[0], &byte, 1) == 1);
	if (me == 0)
		comm_call(comm, "hold", hold, NULL);
	comm_ticket last = queue_sums(comm, &s, "sums", NULL, add_run);
	if (me < 2)
		last = comm_reduce(comm, "ahead",
			&(struct comm_reduction) { .pieces = &piece,
				.piece_count = 1,
				.prepare = me ? NULL : tell_begun,
				.arg = &told,
				.ahead = true });
	WORLD_CHECK(me != 0 || write(queued[1], "x", 1) == 1);
	if (comm_wait(comm, last, err) < 0 || verify_sums(&s, err) < 0)
		return -1;
	WORLD_CHECK(told && theirs == (me == 0));
	free(s.numbers);
	free(s.received);
	return 0;
}

static void test_begins_ahead(void **state)
{
	assert_int_equal(pipe(tell), 0);
	assert_int_equal(pipe(queued), 0);
	world_run_ok(3, body_begins_ahead, NULL);
	for (int i = 0; i < 2; i++) {
		close(tell[i]);
		close(queued[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reduce),
		cmocka_unit_test(test_reduce_in_turn),
		cmocka_unit_test(test_pass_on),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_begins_ahead),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
