/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a communicator tell each other, among real processes, where one stops, is late,
 * gives up or fails: who says nothing, where the others stood, and why. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/hang.h"
#include "tests/unit/trainer/comm/summing.h"
#include "tests/unit/trainer/comm/world_fixture.h"

#define MEGABYTE ((size_t)1 << 20)

/* Computes until the communicator has failed. */
static bool compute_until_failed(struct comm *comm)
{
	struct deadline end = deadline_in(HANG_SECONDS);
	struct err ignored;

	while (comm_check(comm, &ignored) == 0 && deadline_sleep(end, 0.05))
		;
	return !deadline_passed(end);
}

/* Rank 3 stops once it has sent its number to rank 0 alone, which then waits for all others. These
 * compute meanwhile. */
static int body_ahead(struct comm *comm, void *arg, struct err *err)
{
	int me = comm_rank(comm), received, all[WORLD_MAX];
	struct comm_transfer from_3 = { 3, &received, sizeof received, 1 },
						 to_0 = { 0, &me, sizeof me, 0 };

	if (me == 3) {
		if (comm_wait(comm, comm_exchange(comm, "the first", &to_0, 1, NULL, NULL), err) < 0)
			return -1;
		raise(SIGSTOP);
	}
	if (me == 0
		&& comm_wait(comm, comm_exchange(comm, "the first", &from_3, 1, NULL, NULL), err) < 0)
		return -1;
	WORLD_CHECK(me == 0 || compute_until_failed(comm));
	return comm_wait(comm, comm_allgather(comm, "the second", &me, all, sizeof me), err);
}

/* All tell the rank that stopped from those that are named with it. */
static void test_one_is_ahead(void **state)
{
	struct world_rank ranks[4];

	world_run(4, 1.5, body_ahead, NULL, ranks);
	for (int i = 0; i < 3; i++) {
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].err.status, EXIT_LOST);
		world_assert_names(&ranks[i],
			"waiting for rank 1 on here, rank 2 on here, rank 3 on here; "
			"nothing was heard of rank 3 on here");
	}
}

/* An operation that is queued early waits for longer than the deadline while its rank computes,
 * and a little longer for its peer: the deadline is that of the wait. */
static int body_early(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);

	if (me != 0)
		usleep((useconds_t)(5e6 * SLOWER));
	comm_ticket ticket =
		comm_allgather(comm, "early pieces of bucket 0 of step 17", &me, all, sizeof me);
	if (me == 0)
		usleep((useconds_t)(4.5e6 * SLOWER));
	return comm_wait(comm, ticket, err);
}

static void test_early(void **state)
{
	struct world_rank ranks[2];

	world_run(2, 3, body_early, NULL, ranks);
	world_assert_ok(2, ranks);
}

/* Rank 2 stops in its slot 5, rank 1 computes its slot 6 for longer than the deadline: what each of
 * the others says is known to all but the one that says nothing. */
static int body_last_words(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);
	const struct ident ident = { .rank = me, .world_size = comm_size(comm), .node = "here" };
	struct flight_recorder *flight = flight_create(&ident, err);
	unsigned char record[FLIGHT_SIZE];
	struct flight_view view;
	struct err ignored;
	char words[200];
	double now;

	WORLD_CHECK(flight);
	comm_stand(comm, flight);
	comm_place(comm, 17, 3);
	flight_begin(flight, FLIGHT_COMPUTE, 17, 4 + me);
	if (me == 2)
		raise(SIGSTOP);
	comm_ticket ticket = comm_allgather(comm, "bucket 3 of step 17", &me, all, sizeof me);
	WORLD_CHECK(me != 1 || compute_until_failed(comm));
	WORLD_CHECK(comm_wait(comm, ticket, err) < 0);
	for (int rank = 0; rank < ident.world_size; rank++) {
		bool said = comm_last_words(comm, rank, record, &now);

		WORLD_CHECK(said == (rank != 2));
		if (!said)
			continue;
		WORLD_CHECK(flight_read(record, sizeof record, &view, &ignored) == 0 && view.rank == rank);
		flight_words(&view, words, sizeof words);
		WORLD_CHECK(strcmp(words,
						rank == 1 ? "computing slot 5 of step 17"
								  : "waiting in all-gather of bucket 3 of step 17")
			== 0);
		WORLD_CHECK(view.now.step == 17 && view.now.bucket == 3 && view.now.bytes == 4 * sizeof me);
		WORLD_CHECK(now > view.since && now - view.since < 20);
	}
	return 0;
}

static void test_last_words(void **state)
{
	struct world_rank ranks[4];

	world_run(4, 1.5, body_last_words, NULL, ranks);
	for (int i = 0; i < 4; i++)
		if (i != 2 && (!ranks[i].finished || ranks[i].rc != 0))
			fail_msg("rank %d: %s", i, ranks[i].finished ? ranks[i].err.text : "did not finish");
}

/* Rank 1 gives up; the others wait for it and hear why. */
static int body_abort(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);

	if (me == 1) {
		usleep(100000);
		comm_abort(comm, "the disk is on fire");
	}
	return comm_wait(comm, comm_allgather(comm, "control of step 3", &me, all, sizeof me), err);
}

/* The same in a ring, in which not all are connected with rank 1, nor wait for it. */
static int body_abort_in_ring(struct comm *comm, void *arg, struct err *err)
{
	int received, world = comm_size(comm), me = comm_rank(comm);
	struct comm_transfer ring[2] = { { (me + 1) % world, &me, sizeof me, 0 },
		{ (me + world - 1) % world, &received, sizeof received, 1 } };

	if (me == 1) {
		comm_abort(comm, "the disk is on fire");
		return comm_wait(comm, 0, err);
	}
	while (comm_wait(comm, comm_exchange(comm, "the ring", ring, 2, NULL, NULL), err) == 0)
		;
	return -1;
}

static int fail_work(void *arg, struct err *err)
{
	return err_fail(err, EXIT_DATA, "the disk is on fire");
}

static int body_failing_work(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);

	if (me == 1)
		comm_call(comm, "combination", fail_work, NULL);
	return comm_wait(comm, comm_allgather(comm, "control of step 3", &me, all, sizeof me), err);
}

static int fail_run(void *arg, size_t first, size_t bytes, struct err *err)
{
	return first > 0 ? fail_work(arg, err) : 0;
}

/* In its second run; the others wait for its sums. */
static int body_failing_make(struct comm *comm, void *arg, struct err *err)
{
	struct summing s = make_summing(comm, 3 * MEGABYTE / 8);

	return comm_wait(comm,
		queue_sums(comm, &s, "bucket 1 of step 3", NULL, s.me == 1 ? fail_run : add_run), err);
}

static void check_told(int size, world_body *body, enum exit_status own)
{
	struct world_rank ranks[WORLD_MAX];

	world_run(size, 60, body, NULL, ranks);
	for (int i = 0; i < size; i++) {
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, i == 1 ? own : EXIT_LOST);
		world_assert_names(&ranks[i],
			i == 1 ? "the disk is on fire" : "rank 1 on here gave up: the disk is on fire");
		assert_true(ranks[i].seconds < 30 * SLOWER);
	}
}

static void test_abort(void **state)
{
	check_told(4, body_abort, EXIT_LOST);
	check_told(12, body_abort_in_ring, EXIT_LOST);
}

static void test_failing_work(void **state)
{
	check_told(4, body_failing_work, EXIT_DATA);
	check_told(4, body_failing_make, EXIT_DATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_is_ahead),
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_failing_work),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
