/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator among real processes: what it carries, in which order, and that nothing ever hangs when a rank dies,
 * stops or gives up. Where a rank is lost, every other one has to name it. */
#include "config.h"

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
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/world_fixture.h"

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

/* Every rank sends every other its own bytes; sizes straddle Gloo's chunks, 0 among them. */
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
		transfers[count++] = (struct comm_transfer){ peer, out, size, 0 };
		transfers[count++] = (struct comm_transfer){ peer, in, size, 1 };
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
	if (comm_wait(comm, comm_allgather(comm, "sums", sums, everyones, 1001 * sizeof *sums), err) < 0)
		return -1;
	for (int rank = 0; rank < world; rank++)
		WORLD_CHECK(memcmp(everyones + (size_t)rank * 1001, sums, 1001 * sizeof *sums) == 0);
	free(everyones);
	free(all);
	free(mine);
	free(sums);
	return 0;
}

static void run_ok(int size, world_body *body, void *arg)
{
	struct world_rank ranks[WORLD_MAX];

	world_run(size, 20, 60, body, arg, ranks);
	world_assert_ok(size, ranks);
}

static void test_exchange(void **state)
{
	world_need_several();
	for (int size = 1; size <= 4; size++)
		run_ok(size, body_exchange, NULL);
}

static void test_collectives(void **state)
{
	world_need_several();
	for (int size = 1; size <= 5; size += 2)
		run_ok(size, body_collectives, NULL);
}

/* ---- sums on their way ---- */

/* Each rank has a number for every element of every rank's segment; its own segment it sums, others' sums come where their numbers
 * were. */
struct summing {
	int world, me;
	size_t size;        /* elements of a segment */
	uint64_t *numbers;  /* [world · size] */
	uint64_t *received; /* [world · size] by rank; the own place is empty */
	size_t made;        /* elements so far */
};

static uint64_t number_of(int from, int segment, size_t at)
{
	return (uint64_t)(from + 1) * 1000003 + (uint64_t)segment * 101 + at;
}

static int add_run(void *arg, size_t first, size_t bytes, struct err *err)
{
	struct summing *s = arg;

	WORLD_CHECK(first == s->made * sizeof *s->numbers && bytes > 0 && bytes % sizeof *s->numbers == 0);
	for (size_t end = s->made + bytes / sizeof *s->numbers; s->made < end; s->made++)
		for (int from = 0; from < s->world; from++)
			if (from != s->me)
				s->numbers[(size_t)s->me * s->size + s->made] += s->received[(size_t)from * s->size + s->made];
	return 0;
}

static comm_ticket queue_sums(struct comm *comm, struct summing *s, const char *label, comm_prepare *prepare, comm_make *make)
{
	struct comm_transfer pieces[2 * WORLD_MAX], sums[2 * WORLD_MAX];
	size_t bytes = s->size * sizeof *s->numbers;
	uint64_t *own = s->numbers + (size_t)s->me * s->size;
	int count = 0;

	for (int peer = 0; peer < s->world; peer++) {
		uint64_t *theirs = s->numbers + (size_t)peer * s->size;

		if (peer == s->me)
			continue;
		pieces[count] = (struct comm_transfer){ peer, theirs, bytes, 0 };
		sums[count++] = (struct comm_transfer){ peer, own, bytes, 0 };
		pieces[count] = (struct comm_transfer){ peer, s->received + (size_t)peer * s->size, bytes, 1 };
		sums[count++] = (struct comm_transfer){ peer, theirs, bytes, 1 };
	}
	return comm_reduce(comm, label, &(struct comm_reduction){ .pieces = pieces, .piece_count = count, .sums = sums,
		.sum_count = count, .prepare = prepare, .make = make, .arg = s });
}

static struct summing make_summing(struct comm *comm, size_t size)
{
	struct summing s = { .world = comm_size(comm), .me = comm_rank(comm), .size = size };
	size_t all = (size_t)s.world * size;

	s.numbers = malloc(all * sizeof *s.numbers + 1);
	s.received = malloc(all * sizeof *s.received + 1);
	for (size_t i = 0; i < all; i++)
		s.numbers[i] = number_of(s.me, (int)(i / size), i % size);
	return s;
}

static int verify_sums(const struct summing *s, struct err *err)
{
	WORLD_CHECK(s->made == (s->world > 1 ? s->size : 0));
	for (size_t at = 0; s->world > 1 && at < (size_t)s->world * s->size; at++) {
		uint64_t sum = 0;
		for (int from = 0; from < s->world; from++)
			sum += number_of(from, (int)(at / s->size), at % s->size);
		WORLD_CHECK(s->numbers[at] == sum);
	}
	return 0;
}

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
	world_need_several();
	for (int size = 1; size <= 4; size++)
		run_ok(size, body_reduce, NULL);
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
		pieces[count++] = (struct comm_transfer){ peer, (void *)(uintptr_t)number, sizeof *number, 0 };
		pieces[count++] = (struct comm_transfer){ peer, &numbers[peer], sizeof *numbers, 1 };
	}
	return comm_reduce(comm, "pieces", &(struct comm_reduction){ .pieces = pieces, .piece_count = count });
}

/* Queued at once, of all kinds, each begins while others are under way; all receive pieces in one place. */
static int body_reduce_in_turn(struct comm *comm, void *arg, struct err *err)
{
	struct summing s[QUEUED];
	int world = comm_size(comm), me = comm_rank(comm), early[QUEUED][WORLD_MAX], all[QUEUED][WORLD_MAX];
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
			WORLD_CHECK((i % 3 != 1 || peer == me || early[i][peer] == peer) && (i % 5 != 3 || all[i][peer] == peer));
		if (verify_sums(&s[i], err) < 0)
			return -1;
		free(s[i].numbers);
	}
	free(received);
	return 0;
}

static void test_reduce_in_turn(void **state)
{
	world_need_several();
	for (int size = 2; size <= 4; size++)
		run_ok(size, body_reduce_in_turn, NULL);
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

/* Operations of all kinds, queued at once: each one's work runs in its turn and before its ticket is done. */
static int body_order(struct comm *comm, void *arg, struct err *err)
{
	struct sequence sequence = { 0 };
	struct call calls[CALLS];
	comm_ticket tickets[CALLS];
	int world = comm_size(comm), me = comm_rank(comm);
	int sent = me, received[CALLS], all[WORLD_MAX];

	for (int i = 0; i < CALLS; i++) {
		calls[i] = (struct call){ &sequence, i };
		struct comm_transfer ring[2] = {
			{ (me + 1) % world, &sent, sizeof sent, 0 },
			{ (me + world - 1) % world, &received[i], sizeof received[i], 1 },
		};
		if (i % 5 == 3)
			comm_allgather(comm, "between", &me, all, sizeof me);
		tickets[i] = i % 2 ? comm_call(comm, "call", take_turn, &calls[i]) :
			comm_exchange(comm, "ring", ring, world > 1 ? 2 : 0, take_turn, &calls[i]);
		WORLD_CHECK(i == 0 || tickets[i] > tickets[i - 1]);
	}
	if (comm_wait(comm, tickets[CALLS / 2], err) < 0)
		return -1;
	if (comm_wait(comm, tickets[CALLS - 1], err) < 0)
		return -1;
	WORLD_CHECK(sequence.next == CALLS);
	WORLD_CHECK(comm_standing(comm).operation[0] == '\0');
	for (int i = 0; i < CALLS && world > 1; i += 2)
		WORLD_CHECK(received[i] == (me + world - 1) % world);
	return comm_wait(comm, tickets[0], err);
}

static void test_order(void **state)
{
	world_need_several();
	for (int size = 1; size <= 3; size++)
		run_ok(size, body_order, NULL);
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
	world_need_several();
	struct world_rank ranks[4];

	world_run(4, 20, 30, body_uneven_end, NULL, ranks);
	world_assert_ok(4, ranks);
}

static int body_meet_once(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);
	return comm_wait(comm, comm_allgather(comm, "only", &me, all, sizeof me), err);
}

/* Ranks that leave at the same moment hear each other do so, whoever closes his connections first: none waits in vain for
 * the 5 s in which srun may have killed it. */
static void test_common_end(void **state)
{
	world_need_several();
	struct world_rank ranks[16];

	for (int i = 0; i < 6; i++) {
		double begun = clock_now();
		world_run(16, 20, 60, body_meet_once, NULL, ranks);
		world_assert_ok(16, ranks);
		assert_true(clock_now() - begun < 5);
	}
}

/* ---- failures ---- */

enum when { BEFORE, DURING };

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

/* Large exchanges (or reductions, or all-reduces) for ever; the victim dies or stops at its third, or in the midst of them. */
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
		if (me == doom->victim && i == 3 && doom->when == BEFORE)
			raise(doom->signal);
		if (me == doom->victim && i == 3 && doom->when == DURING)
			pthread_create(&striker, NULL, strike, &doom->signal);
		for (int peer = 0; peer < world; peer++) {
			char *out = (char *)memory + (size_t)(2 * peer) * size;
			if (peer == me)
				continue;
			transfers[count++] = (struct comm_transfer){ peer, out, size, 0 };
			transfers[count++] = (struct comm_transfer){ peer, out + size, size, 1 };
		}
		summing.made = 0;
		comm_ticket ticket = doom->kind == ALLREDUCE ? comm_allreduce(comm, label, memory, size / sizeof(float)) :
			doom->kind == REDUCE ? queue_sums(comm, &summing, label, NULL, add_run) :
			comm_exchange(comm, label, transfers, count, NULL, NULL);
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

static void assert_names(const struct world_rank *rank, const char *word)
{
	if (!strstr(rank->err.text, word))
		fail_msg("\"%s\" is not in: %s", word, rank->err.text);
}

/* All but the victim have ended with EXIT_LOST, naming it, what they stood in, and in time. */
static void check_doom(int size, double deadline, double limit, struct doom doom, bool name_always)
{
	struct world_rank ranks[WORLD_MAX];
	char victim[20];
	int exact = 0;

	snprintf(victim, sizeof victim, "rank %d on here", doom.victim);
	world_run(size, deadline, limit + 5, body_doom, &doom, ranks);
	for (int i = 0; i < size; i++) {
		if (i == doom.victim)
			continue;
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_LOST);
		if (name_always)
			assert_names(&ranks[i], victim);
		assert_names(&ranks[i], "of step 17");
		assert_names(&ranks[i], doom.kind == ALLREDUCE ? "all-reduce" : "exchange");
		assert_true(ranks[i].seconds < limit);
		exact += !strstr(ranks[i].err.text, ", rank");
	}
	/* Who waits for a piece itself, and so has no sum for others, is not to blame. (A rank that the machine holds up while it asks
	 * what is complete may name one too many.) */
	if (doom.kind == REDUCE && doom.signal == SIGSTOP)
		assert_true(exact > 0);
}

/* Long before the deadline: the connection tells. */
static void test_killed_before(void **state)
{
	world_need_several();
	check_doom(4, 30, 10, (struct doom){ 2, SIGKILL, BEFORE, EXCHANGE }, true);
	check_doom(4, 30, 10, (struct doom){ 2, SIGKILL, BEFORE, REDUCE }, true);
}

static void test_killed_during(void **state)
{
	world_need_several();
	check_doom(4, 30, 10, (struct doom){ 1, SIGKILL, DURING, EXCHANGE }, true);
	check_doom(2, 30, 10, (struct doom){ 0, SIGKILL, DURING, EXCHANGE }, true);
	check_doom(3, 30, 10, (struct doom){ 1, SIGKILL, DURING, REDUCE }, true);
}

static void test_stopped(void **state)
{
	world_need_several();
	check_doom(4, 1.5, 8, (struct doom){ 2, SIGSTOP, BEFORE, EXCHANGE }, true);
	check_doom(3, 1.5, 8, (struct doom){ 0, SIGSTOP, DURING, EXCHANGE }, true);
	check_doom(3, 1.5, 8, (struct doom){ 2, SIGSTOP, BEFORE, REDUCE }, true);
}

/* In a ring a rank may wait for one that waits itself: with a stopped one not all can name it, but all end. */
static void test_allreduce_fails(void **state)
{
	world_need_several();
	check_doom(3, 30, 10, (struct doom){ 2, SIGKILL, DURING, ALLREDUCE }, true);
	check_doom(3, 1.5, 10, (struct doom){ 2, SIGSTOP, BEFORE, ALLREDUCE }, false);
}

/* An operation that is queued early stands for longer than the deadline while its rank computes, and a little longer for its peer:
 * the deadline is that of the wait. */
static int body_early(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);

	if (me != 0)
		usleep(1900000);
	comm_ticket ticket = comm_allgather(comm, "early pieces of bucket 0 of step 17", &me, all, sizeof me);
	if (me == 0)
		usleep(1500000);
	return comm_wait(comm, ticket, err);
}

static void test_early(void **state)
{
	struct world_rank ranks[2];

	world_need_several();
	world_run(2, 1, 20, body_early, NULL, ranks);
	world_assert_ok(2, ranks);
}

/* Rank 2 stops in its slot 5, rank 1 computes its slot 6 for longer than the deadline: what each of the others says is known to all
 * but the one that says nothing. */
static int body_last_words(struct comm *comm, void *arg, struct err *err)
{
	int all[WORLD_MAX], me = comm_rank(comm);
	const struct ident ident = { .rank = me, .world_size = comm_size(comm), .node = "here" };
	struct standing *standing = standing_create(&ident, err);
	unsigned char record[STANDING_SIZE];
	struct standing_view view;
	struct err ignored;
	char words[200];
	double now;

	WORLD_CHECK(standing);
	comm_stand(comm, standing);
	comm_place(comm, 17, 3);
	standing_begin(standing, STANDING_COMPUTE, 17, 4 + me);
	if (me == 2)
		raise(SIGSTOP);
	comm_ticket ticket = comm_allgather(comm, "bucket 3 of step 17", &me, all, sizeof me);
	if (me == 1) {
		struct deadline end = deadline_in(15);
		while (comm_check(comm, &ignored) == 0 && deadline_sleep(end, 0.05))
			;
		WORLD_CHECK(!deadline_passed(end));
	}
	WORLD_CHECK(comm_wait(comm, ticket, err) < 0);
	for (int rank = 0; rank < ident.world_size; rank++) {
		bool said = comm_last_words(comm, rank, record, &now);

		WORLD_CHECK(said == (rank != 2));
		if (!said)
			continue;
		WORLD_CHECK(standing_read(record, sizeof record, &view, &ignored) == 0 && view.rank == rank);
		standing_words(&view, words, sizeof words);
		WORLD_CHECK(strcmp(words, rank == 1 ? "computing slot 5 of step 17" : "waiting in all-gather of bucket 3 of step 17") == 0);
		WORLD_CHECK(view.now.step == 17 && view.now.bucket == 3 && view.now.bytes == 4 * sizeof me);
		WORLD_CHECK(now > view.since && now - view.since < 20);
	}
	return 0;
}

static void test_last_words(void **state)
{
	struct world_rank ranks[4];

	world_need_several();
	world_run(4, 1.5, 8, body_last_words, NULL, ranks);
	for (int i = 0; i < 4; i++)
		if (i != 2 && (!ranks[i].finished || ranks[i].rc != 0))
			fail_msg("rank %d: %s", i, ranks[i].err.text);
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

	return comm_wait(comm, queue_sums(comm, &s, "bucket 1 of step 3", NULL, s.me == 1 ? fail_run : add_run), err);
}

static void check_told(world_body *body, enum exit_status own)
{
	struct world_rank ranks[4];

	world_run(4, 30, 15, body, NULL, ranks);
	for (int i = 0; i < 4; i++) {
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, i == 1 ? own : EXIT_LOST);
		assert_names(&ranks[i], "the disk is on fire");
		if (i != 1)
			assert_names(&ranks[i], "rank 1 on here");
		assert_true(ranks[i].seconds < 6);
	}
}

static void test_abort(void **state)
{
	world_need_several();
	check_told(body_abort, EXIT_LOST);
}

static void test_failing_work(void **state)
{
	world_need_several();
	check_told(body_failing_work, EXIT_DATA);
	check_told(body_failing_make, EXIT_DATA);
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
#ifndef HAVE_GLOO
	assert_null(comm_open(&two, NULL, NULL, 5, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "libgloo-dev"));
#endif
}

static int body_never(struct comm *comm, void *arg, struct err *err)
{
	return err_set(err, "it has opened");
}

/* Who can't take part says so where its address would have been: all end at once, and with the same line. */
static void test_no_interface(void **state)
{
	struct world_rank ranks[3];

	world_need_several();
	setenv("MUSTER_IFNAME", "nowhere0", 1);
	world_run(3, 20, 10, body_never, NULL, ranks);
	unsetenv("MUSTER_IFNAME");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_USAGE);
		assert_names(&ranks[i], "rank 0 (on here): comm: couldn't use the interface MUSTER_IFNAME=nowhere0");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_providers),
		cmocka_unit_test(test_no_interface),
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_collectives),
		cmocka_unit_test(test_reduce),
		cmocka_unit_test(test_reduce_in_turn),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_uneven_end),
		cmocka_unit_test(test_common_end),
		cmocka_unit_test(test_killed_before),
		cmocka_unit_test(test_killed_during),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_allreduce_fails),
		cmocka_unit_test(test_early),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_failing_work),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
