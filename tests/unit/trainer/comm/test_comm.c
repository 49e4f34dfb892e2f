/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator among real processes: what it carries, in which order, and how it ends. */
#include "config.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/hang.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "trainer/comm/comm_provider.h"

#define MEGABYTE ((size_t)1 << 20)

static unsigned char pattern(int from, int to, size_t at)
{
	return (unsigned char)(from * 31 + to * 7 + at * 13 + (at >> 11));
}

static void fill(unsigned char *bytes, size_t size, int from, int to)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = pattern(from, to, i);
}

static int verify(const unsigned char *bytes, size_t size, int from, int to, struct err *err)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i] != pattern(from, to, i))
			return err_set(err, "byte %zu of %zu from rank %d to %d is wrong", i, size, from, to);
	return 0;
}

/* ---- what it carries ---- */

/* Every rank sends every other its own bytes; sizes straddle chunks and the window, 0 among them.
 */
static int exchange_all(struct comm *comm, size_t size, struct err *err)
{
	int world = comm_size(comm), me = comm_rank(comm), count = 0;
	struct comm_transfer transfers[2 * WORLD_MAX];
	unsigned char *memory = malloc(2 * (size_t)world * (size + 1));

	for (int peer = 0; peer < world; peer++) {
		unsigned char *out = memory + (size_t)(2 * peer) * (size + 1), *in = out + size + 1;

		if (peer == me)
			continue;
		fill(out, size, me, peer);
		transfers[count++] = (struct comm_transfer) { peer, out, size, 0 };
		transfers[count++] = (struct comm_transfer) { peer, in, size, 1 };
	}
	int rc = comm_wait(comm, comm_exchange(comm, "test", transfers, count, NULL, NULL), err);
	for (int peer = 0; rc == 0 && peer < world; peer++)
		if (peer != me)
			rc = verify(memory + (size_t)(2 * peer + 1) * (size + 1), size, peer, me, err);
	free(memory);
	return rc;
}

static int body_exchange(struct comm *comm, void *arg, struct err *err)
{
	static const size_t sizes[] = { 0, 1, 1000, MEGABYTE - 1, MEGABYTE, 3 * MEGABYTE + 17, 0, 5 };

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		if (exchange_all(comm, sizes[i], err) < 0)
			return -1;
	return 0;
}

static int body_collectives(struct comm *comm, void *arg, struct err *err)
{
	static const size_t sizes[] = { 1, 24, 65536, 65537, 2 * MEGABYTE + 3 };
	int world = comm_size(comm), me = comm_rank(comm);
	unsigned char *all = malloc((size_t)world * sizes[4]);
	unsigned char *mine = malloc(sizes[4]);
	float *sums = malloc(MEGABYTE);

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		fill(mine, sizes[i], me, 99);
		memset(all, 0, (size_t)world * sizes[i]);
		if (comm_wait(comm, comm_allgather(comm, "test", mine, all, sizes[i]), err) < 0)
			return -1;
		for (int from = 0; from < world; from++)
			if (verify(all + (size_t)from * sizes[i], sizes[i], from, 99, err) < 0)
				return err_prefix(err, "all-gather");
		for (int root = 0; root < world; root++) {
			memset(all, 0, sizes[i]);
			if (me == root)
				fill(all, sizes[i], root, 77);
			if (comm_wait(comm, comm_broadcast(comm, "test", all, sizes[i], root), err) < 0)
				return -1;
			if (verify(all, sizes[i], root, 77, err) < 0)
				return err_prefix(err, "broadcast");
		}
	}
	for (size_t count = 1; count <= MEGABYTE / sizeof(float); count *= 7) {
		for (size_t i = 0; i < count; i++)
			sums[i] = (float)(me + 1) * (float)(i % 100);
		if (comm_wait(comm, comm_allreduce(comm, "test", sums, count), err) < 0)
			return -1;
		for (size_t i = 0; i < count; i++)
			WORLD_CHECK(sums[i] == (float)(world * (world + 1) / 2) * (float)(i % 100));
	}
	/* Of the first four bits or so nothing is lost, and all ranks have the same bits. */
	for (size_t i = 0; i < 1001; i++)
		sums[i] = (float)sin((double)(me + 1) * (double)(i + 1));
	if (comm_wait(comm, comm_allreduce_bf16(comm, "test", sums, 1001), err) < 0)
		return -1;
	for (size_t i = 0; i < 1001; i++) {
		double exact = 0;
		for (int rank = 0; rank < world; rank++)
			exact += (float)sin((double)(rank + 1) * (double)(i + 1));
		WORLD_CHECK(fabs((double)sums[i] - exact) <= 0.004 * (double)world * (double)world);
	}
	float *everyones = calloc((size_t)world, 1001 * sizeof *everyones);
	if (comm_wait(comm, comm_allgather(comm, "sums", sums, everyones, 1001 * sizeof *sums), err)
		< 0)
		return -1;
	for (int rank = 0; rank < world; rank++)
		WORLD_CHECK(memcmp(everyones + (size_t)rank * 1001, sums, 1001 * sizeof *sums) == 0);
	free(everyones);
	free(all);
	free(mine);
	free(sums);
	return 0;
}

static void test_exchange(void **state)
{
	for (int size = 1; size <= 4; size++)
		world_run_ok(size, body_exchange, NULL);
}

static void test_collectives(void **state)
{
	for (int size = 1; size <= 5; size += 2)
		world_run_ok(size, body_collectives, NULL);
}

static int body_many(struct comm *comm, void *arg, struct err *err)
{
	static const size_t sizes[] = { 24, 65537 };
	int world = comm_size(comm), me = comm_rank(comm), roots[] = { 0, 5, world - 1 };
	unsigned char *mine = malloc(sizes[1]), *all = malloc((size_t)world * sizes[1]);

	for (size_t i = 0; i < 2; i++) {
		fill(mine, sizes[i], me, 99);
		if (comm_wait(comm, comm_allgather(comm, "test", mine, all, sizes[i]), err) < 0)
			return -1;
		for (int from = 0; from < world; from++)
			if (verify(all + (size_t)from * sizes[i], sizes[i], from, 99, err) < 0)
				return err_prefix(err, "all-gather");
		for (int root = 0; root < 3; root++) {
			memset(mine, 0, sizes[i]);
			if (me == roots[root])
				fill(mine, sizes[i], me, 77);
			if (comm_wait(comm, comm_broadcast(comm, "test", mine, sizes[i], roots[root]), err) < 0)
				return -1;
			if (verify(mine, sizes[i], roots[root], 77, err) < 0)
				return err_prefix(err, "broadcast");
		}
	}
	free(mine);
	free(all);
	return 0;
}

/* Among many ranks they take steps that double what has come; also where the ranks are no power of
 * two. */
static void test_collectives_of_many(void **state)
{
	world_run_ok(COMM_DIRECT + 1, body_many, NULL);
	world_run_ok(COMM_DIRECT + 8, body_many, NULL);
}

/* ---- order ---- */

#define CALLS 200

struct sequence {
	int next;
};

struct call {
	struct sequence *sequence;
	int number;
};

static int take_turn(void *arg, struct err *err)
{
	struct call *call = arg;

	WORLD_CHECK(call->sequence->next == call->number);
	call->sequence->next++;
	return 0;
}

/* Operations of all kinds, queued at once: each one's work runs in its turn and before its ticket
 * is done. */
static int body_order(struct comm *comm, void *arg, struct err *err)
{
	struct sequence sequence = { 0 };
	struct call calls[CALLS];
	comm_ticket tickets[CALLS];
	int world = comm_size(comm), me = comm_rank(comm);
	int sent = me, received[CALLS], all[WORLD_MAX];

	for (int i = 0; i < CALLS; i++) {
		calls[i] = (struct call) { &sequence, i };
		struct comm_transfer ring[2] = {
			{ (me + 1) % world, &sent, sizeof sent, 0 },
			{ (me + world - 1) % world, &received[i], sizeof received[i], 1 },
		};
		if (i % 5 == 3)
			comm_allgather(comm, "between", &me, all, sizeof me);
		tickets[i] = i % 2
			? comm_call(comm, "call", take_turn, &calls[i])
			: comm_exchange(comm, "ring", ring, world > 1 ? 2 : 0, take_turn, &calls[i]);
		WORLD_CHECK(i == 0 || tickets[i] > tickets[i - 1]);
	}
	if (comm_wait(comm, tickets[CALLS / 2], err) < 0)
		return -1;
	if (comm_wait(comm, tickets[CALLS - 1], err) < 0)
		return -1;
	WORLD_CHECK(sequence.next == CALLS);
	WORLD_CHECK(comm_flight(comm).operation[0] == '\0');
	for (int i = 0; i < CALLS && world > 1; i += 2)
		WORLD_CHECK(received[i] == (me + world - 1) % world);
	return comm_wait(comm, tickets[0], err);
}

static void test_order(void **state)
{
	for (int size = 1; size <= 3; size++)
		world_run_ok(size, body_order, NULL);
}

/* Ranks that leave at different times: who is done first does not fail the others. */
static int body_uneven_end(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);

	for (int i = 0; i < 20; i++)
		if (comm_wait(comm, comm_allgather(comm, "last", &me, all, sizeof me), err) < 0)
			return -1;
	usleep((useconds_t)me * 150000);
	struct err late;
	WORLD_CHECK(comm_wait(comm, 1, &late) == 0);
	return 0;
}

static void test_uneven_end(void **state)
{
	struct world_rank ranks[4];

	world_run(4, 20, body_uneven_end, NULL, ranks);
	world_assert_ok(4, ranks);
}

static int body_meet_once(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);
	return comm_wait(comm, comm_allgather(comm, "only", &me, all, sizeof me), err);
}

/* Ranks that leave at the same moment hear each other do so, whichever closes its connections
 * first: none waits in vain for the 5 s in which srun may have killed it. */
static void test_common_end(void **state)
{
	struct world_rank ranks[16];

	for (int i = 0; i < 6; i++) {
		double begun = clock_now();
		world_run(16, 20, body_meet_once, NULL, ranks);
		world_assert_ok(16, ranks);
		assert_true(clock_now() - begun < 5 * SLOWER);
	}
}

/* ---- connections ---- */

static int count_sockets(void)
{
	char path[300], target[300];
	DIR *folder = opendir("/proc/self/fd");
	int sockets = 0;

	for (struct dirent *at; folder && (at = readdir(folder));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", at->d_name);
		ssize_t size = readlink(path, target, sizeof target);
		sockets += size > 7 && memcmp(target, "socket:", 7) == 0;
	}
	if (folder)
		closedir(folder);
	return sockets;
}

static int exchange_in_ring(struct comm *comm, int step, struct err *err)
{
	int world = comm_size(comm), me = comm_rank(comm), received = -1, from = me - step + world;
	struct comm_transfer ring[2] = { { (me + step) % world, &me, sizeof me, 0 },
		{ from % world, &received, sizeof received, 1 } };

	if (comm_wait(comm, comm_exchange(comm, "ring", ring, 2, NULL, NULL), err) < 0)
		return -1;
	WORLD_CHECK(received == from % world);
	return 0;
}

/* Waits until this process has that number of sockets; false: it never has. */
static bool has_sockets(int count)
{
	struct deadline end = deadline_in(HANG_SECONDS);
	while (count_sockets() != count && deadline_sleep(end, 0.01))
		;
	return count_sockets() == count;
}

struct ring {
	int before, step, sockets;
};

/* With its neighbours a rank is connected from the start, with others once they exchange something:
 * never with all. */
static int body_ring(struct comm *comm, void *arg, struct err *err)
{
	const struct ring *ring = arg;

	for (int i = 0; i < 3; i++)
		if (exchange_in_ring(comm, ring->step, err) < 0)
			return -1;
	WORLD_CHECK(has_sockets(ring->before + ring->sockets));
	return 0;
}

static void test_connections_on_demand(void **state)
{
	struct ring near = { count_sockets(), 1, 1 + 2 }; /* one of them listens */
	struct ring far = { near.before, 5, 1 + 2 + 2 };

	world_run_ok(64, body_ring, &near);
	world_run_ok(12, body_ring, &far);
}

/* Of 32 ranks each exchanges with the nine that are 1, 2, 4, 8 and 16 away; for a moment a pair may
 * have two connections. */
static int body_connections(struct comm *comm, void *arg, struct err *err)
{
	int before = count_sockets(), world = comm_size(comm);
	char all[WORLD_MAX], word = 'x';

	if (comm_wait(comm, comm_allgather(comm, "words", &word, all, 1), err) < 0
		|| comm_wait(comm, comm_broadcast(comm, "word", &word, 1, world - 1), err) < 0)
		return -1;
	WORLD_CHECK(memchr(all, 'x', 1) && count_sockets() <= before + 18);
	return 0;
}

static void test_few_connections_of_many(void **state)
{
	world_run_ok(32, body_connections, NULL);
}

/* What waits for the connection goes once it is there, though nothing ever comes back by it. */
static int body_one_way(struct comm *comm, void *arg, struct err *err)
{
	int me = comm_rank(comm), number = me;
	struct comm_transfer transfer = { 2 - me, &number, sizeof number, me == 2 };

	if (me == 2)
		usleep(200000);
	if (me % 2 == 0
		&& comm_wait(comm, comm_exchange(comm, "one way", &transfer, 1, NULL, NULL), err) < 0)
		return -1;
	WORLD_CHECK(me == 2 ? number == 0 : number == me);
	return 0;
}

static void test_one_way(void **state)
{
	world_run_ok(4, body_one_way, NULL);
}

static int body_nothing(struct comm *comm, void *arg, struct err *err)
{
	return comm_rank(comm) == 1 ? 0 : comm_check(comm, err);
}

/* Ranks that exchange nothing leave at once, and each hears of its neighbours that they have. */
static void test_nothing(void **state)
{
	struct world_rank ranks[5];
	double begun = clock_now();

	world_run(5, 20, body_nothing, NULL, ranks);
	world_assert_ok(5, ranks);
	assert_true(clock_now() - begun < 5 * SLOWER);
}

/* ---- what is lent to the provider ---- */

/* A provider whose exchanges fail: what it was lent last, and whether that was freed before it
 * left. */
static struct {
	const unsigned char *buffer;
	bool left, freed;
} lent;

void __real_free(void *p);
void __wrap_free(void *p);

void __wrap_free(void *p)
{
	const unsigned char *start = p;
	if (start && lent.buffer && !lent.left && lent.buffer >= start
		&& lent.buffer < start + malloc_usable_size(p))
		lent.freed = true;
	__real_free(p);
}

static void *lent_open(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	memset(&lent, 0, sizeof lent);
	return &lent;
}

static void *lent_begin(void *state, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums)
{
	for (int i = 0; i < count; i++)
		if (transfers[i].receive)
			lent.buffer = transfers[i].buffer;
	return state;
}

static int lent_next_run(void *state, void *exchange, size_t made, size_t *bytes, struct err *err)
{
	*bytes = 0;
	return 0;
}

static int lent_finish(void *state, void *exchange, struct err *err)
{
	return err_fail(err, EXIT_LOST, "rank 1 is gone");
}

static void lent_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	lent.left = true;
}

static bool lent_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	return false;
}

static int lent_check(void *state, struct err *err)
{
	return 0;
}

static void lent_nothing(void *state) {}

static const char *lent_peer(void *state, int rank)
{
	return "a rank";
}

static const struct comm_provider lender = { .name = "lender",
	.open = lent_open,
	.begin = lent_begin,
	.next_run = lent_next_run,
	.finish = lent_finish,
	.interrupt = lent_nothing,
	.check = lent_check,
	.leave = lent_leave,
	.said = lent_said,
	.close = lent_nothing,
	.peer = lent_peer };

/* A rank that was waited for in vain may send yet. */
static void test_what_is_lent_stays_until_the_provider_has_left(void **state)
{
	struct ident ident = { .world_size = 2,
		.local_world_size = 2,
		.node_count = 1,
		.node = "here" };
	float sums[1000] = { 0 };
	for (int bf16 = 0; bf16 < 2; bf16++) {
		struct err err;
		struct comm *comm = comm_open_over(&lender, &ident, NULL, 20, &err);
		assert_non_null(comm);
		comm_ticket ticket = bf16 ? comm_allreduce_bf16(comm, "sum", sums, 1000)
								  : comm_allreduce(comm, "sum", sums, 1000);
		assert_int_equal(comm_wait(comm, ticket, &err), -1);
		assert_int_equal(err.status, EXIT_LOST);
		assert_non_null(lent.buffer);
		assert_true(lent.left);
		assert_false(lent.freed);
		comm_close(comm);
	}
}

/* ---- opening ---- */

static void test_providers(void **state)
{
	struct ident one = { .world_size = 1, .local_world_size = 1, .node_count = 1, .node = "here" };
	struct ident two = { .world_size = 2, .local_world_size = 2, .node_count = 1, .node = "here" };
	struct err err;
	struct comm *comm = comm_open(&one, NULL, NULL, 5, &err);

	assert_non_null(comm);
	assert_string_equal(comm_provider(comm), "single");
	assert_int_equal(comm_wait(comm, 7, &err), -1);
	comm_close(comm);
	comm_close(NULL);
	assert_null(comm_open(&two, NULL, "single", 5, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_null(comm_open(&one, NULL, "pigeon", 5, &err));
	assert_int_equal(err.status, EXIT_USAGE);
}

static int body_never(struct comm *comm, void *arg, struct err *err)
{
	return err_set(err, "it has opened");
}

/* Who can't take part says so where its address would have been: all end at once, and with the same
 * line. */
static void test_no_interface(void **state)
{
	struct world_rank ranks[3];

	setenv("MUSTER_IFNAME", "nowhere0", 1);
	world_run(3, 20, body_never, NULL, ranks);
	unsetenv("MUSTER_IFNAME");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_USAGE);
		world_assert_names(&ranks[i],
			"rank 0 (on here): comm: couldn't use the interface MUSTER_IFNAME=nowhere0");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_lent_stays_until_the_provider_has_left),
		cmocka_unit_test(test_providers),
		cmocka_unit_test(test_no_interface),
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_collectives_of_many),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_uneven_end),
		cmocka_unit_test(test_common_end),
		cmocka_unit_test(test_connections_on_demand),
		cmocka_unit_test(test_few_connections_of_many),
		cmocka_unit_test(test_one_way),
		cmocka_unit_test(test_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
