/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator when a rank dies or stops, among real processes: nothing ever hangs, and every
 * other rank has to name the one that is lost. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/hang.h"
#include "tests/unit/trainer/comm/summing.h"
#include "tests/unit/trainer/comm/world_fixture.h"

#define MEGABYTE ((size_t)1 << 20)

enum when { FIRST, BEFORE, DURING, WAITING };

enum kind { EXCHANGE, REDUCE, ALLREDUCE };

struct doom {
	int victim, signal;
	enum when when;
	enum kind kind;
};

static void *strike(void *arg)
{
	usleep(30000);
	raise(*(int *)arg);
	return NULL;
}

/* Large exchanges (or reductions, or all-reduces) for ever; the victim dies or stops before the
 * first, at its third, in the midst of it, or while it waits for rank 0, which comes late to it. */
static int body_doom(struct comm *comm, void *arg, struct err *err)
{
	struct doom *doom = arg;
	int world = comm_size(comm), me = comm_rank(comm);
	size_t size = 8 * MEGABYTE;
	float *memory = calloc(2, (size_t)world * size);
	struct summing summing = make_summing(comm, size / sizeof(uint64_t));
	pthread_t striker;

	for (int i = 0; i < 1000; i++) {
		char label[64];
		struct comm_transfer transfers[2 * WORLD_MAX];
		int count = 0;

		snprintf(label, sizeof label, "bucket %d of step 17", i);
		if (me == doom->victim && i == (doom->when == FIRST ? 0 : 3) && doom->when <= BEFORE)
			raise(doom->signal);
		if (me == doom->victim && i == 3 && doom->when > BEFORE)
			pthread_create(&striker, NULL, strike, &doom->signal);
		if (me == 0 && i == 3 && doom->when == WAITING)
			usleep(300000);
		for (int peer = 0; peer < world; peer++) {
			char *out = (char *)memory + (size_t)(2 * peer) * size;
			if (peer == me)
				continue;
			transfers[count++] = (struct comm_transfer) { peer, out, size, 0 };
			transfers[count++] = (struct comm_transfer) { peer, out + size, size, 1 };
		}
		summing.made = 0;
		comm_ticket ticket = doom->kind == ALLREDUCE
			? comm_allreduce(comm, label, memory, size / sizeof(float))
			: doom->kind == REDUCE ? queue_sums(comm, &summing, label, NULL, add_run)
								   : comm_exchange(comm, label, transfers, count, NULL, NULL);
		if (comm_wait(comm, ticket, err) < 0) {
			struct err again;
			int rc = comm_wait(comm, comm_call(comm, "later", NULL, NULL), &again);
			if (rc == 0 || strcmp(again.text, err->text) != 0)
				return err_set(err, "the first error did not stay: %s", again.text);
			return -1;
		}
	}
	free(memory);
	free(summing.numbers);
	free(summing.received);
	return 0;
}

/* All but the victim have ended with EXIT_LOST, naming it, what they stood in, and in time. */
static void check_doom(int size, double deadline, struct doom doom, bool name_always)
{
	struct world_rank ranks[WORLD_MAX];
	char victim[20];
	int exact = 0;

	snprintf(victim, sizeof victim, "rank %d on here", doom.victim);
	world_run(size, deadline, body_doom, &doom, ranks);
	for (int i = 0; i < size; i++) {
		if (i == doom.victim)
			continue;
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_LOST);
		if (name_always)
			world_assert_names(&ranks[i], victim);
		/* One that hears of it before its own first operation stands in none. */
		bool stood = strncmp(ranks[i].err.text, "comm: rank ", strlen("comm: rank ")) != 0;
		assert_true(stood || doom.when == FIRST);
		if (stood) {
			world_assert_names(&ranks[i], "of step 17");
			world_assert_names(&ranks[i], doom.kind == ALLREDUCE ? "all-reduce" : "exchange");
		}
		assert_true(ranks[i].seconds < 25 * SLOWER);
		exact += !strstr(ranks[i].err.text, ", rank");
	}
	/* Who waits for a piece itself, and so has no sum for others, is not to blame. */
	if (doom.kind == REDUCE && doom.signal == SIGSTOP && doom.when == BEFORE)
		assert_int_equal(exact, size - 1);
}

/* Before the deadline: the connection tells. */
static void test_killed_before(void **state)
{
	check_doom(4, 30, (struct doom) { 2, SIGKILL, BEFORE, EXCHANGE }, true);
	check_doom(4, 30, (struct doom) { 2, SIGKILL, BEFORE, REDUCE }, true);
}

/* No rank has exchanged anything with the victim; a ring's ranks wait for few others. */
static void test_dies_before_the_first_contact(void **state)
{
	for (int victim = 0; victim < 5; victim += 2)
		check_doom(5, 30, (struct doom) { victim, SIGKILL, FIRST, EXCHANGE }, true);
	check_doom(2, 30, (struct doom) { 1, SIGKILL, FIRST, EXCHANGE }, true);
	check_doom(7, 30, (struct doom) { 3, SIGKILL, FIRST, ALLREDUCE }, true);
	check_doom(4, 1.5, (struct doom) { 2, SIGSTOP, FIRST, EXCHANGE }, true);
}

static void test_killed_during(void **state)
{
	check_doom(4, 30, (struct doom) { 1, SIGKILL, DURING, EXCHANGE }, true);
	check_doom(2, 30, (struct doom) { 0, SIGKILL, DURING, EXCHANGE }, true);
	check_doom(3, 30, (struct doom) { 1, SIGKILL, DURING, REDUCE }, true);
}

static void test_stopped(void **state)
{
	check_doom(4, 1.5, (struct doom) { 2, SIGSTOP, BEFORE, EXCHANGE }, true);
	check_doom(3, 1.5, (struct doom) { 0, SIGSTOP, DURING, EXCHANGE }, true);
	check_doom(3, 1.5, (struct doom) { 2, SIGSTOP, BEFORE, REDUCE }, true);
	/* Who has all pieces waits for the sum of rank 0, too, which has none of the victim's. */
	check_doom(4, 1.5, (struct doom) { 3, SIGSTOP, WAITING, REDUCE }, true);
}

/* In a ring a rank may wait for one that waits itself: with a stopped one not all can name it, but
 * all end. */
static void test_allreduce_fails(void **state)
{
	check_doom(3, 30, (struct doom) { 2, SIGKILL, DURING, ALLREDUCE }, true);
	check_doom(3, 1.5, (struct doom) { 2, SIGSTOP, BEFORE, ALLREDUCE }, false);
}

/* ---- who goes when ---- */

#define LATE_SECONDS 0.7

struct ends {
	double came[4], left[4]; /* each survivor to the end of its words, and from there */
};

/* Rank 2 dies; of the others, rank 1 has much to say, and rank 3 hears of it at once, while its
 * communicator still says goodbye. */
static int body_ends(struct comm *comm, void *arg, struct err *err)
{
	struct ends *ends = arg;
	int me = comm_rank(comm);
	char mine = 0, all[4];

	/* What it sent in its first exchange may be lost with it. */
	int rc = comm_wait(comm, comm_allgather(comm, "step 0", &mine, all, 1), err);
	if (me == 2)
		raise(SIGKILL);
	comm_ticket ticket = comm_allgather(comm, "step 1", &mine, all, 1);
	while (me == 3 && comm_check(comm, err) == 0)
		;
	if (me != 3 && rc == 0 && comm_wait(comm, ticket, err) == 0)
		return err_set(err, "rank 2 was not missed");
	if (me == 1)
		usleep((useconds_t)(LATE_SECONDS * 1e6));
	ends->came[me] = clock_now();
	comm_hang_up(comm, 60);
	ends->left[me] = clock_now();
	return -1;
}

/* Nobody goes before all have told their reason, and the dead one is not waited for. */
static void test_all_go_together(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ends *ends =
		mmap(NULL, sizeof *ends, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(ends != MAP_FAILED);
	world_run(4, 30, body_ends, ends, ranks);
	double last = fmax(fmax(ends->came[0], ends->came[1]), ends->came[3]);
	for (int rank = 0; rank < 4; rank++) {
		if (rank == 2)
			continue;
		world_assert_names(&ranks[rank], "rank 2 on here is gone");
		assert_null(strstr(ranks[rank].err.text, "rank 3 on here is gone"));
		assert_null(strstr(ranks[rank].err.text, ", rank"));
		assert_true(ends->left[rank] >= last);
		assert_true(ends->left[rank] - last < 30);
	}
	munmap(ends, sizeof *ends);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_before),
		cmocka_unit_test(test_dies_before_the_first_contact),
		cmocka_unit_test(test_killed_during),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_allreduce_fails),
		cmocka_unit_test(test_all_go_together),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
