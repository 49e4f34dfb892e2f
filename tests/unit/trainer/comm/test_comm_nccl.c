/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator over NCCL among real processes whose GPUs are stand-ins: what it carries of the
 * host's and of a device's memory, after what, and how it ends when a rank dies, stops or gives
 * up. The device does everything as late as it may. */
#include "config.h"

#include <math.h>
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

#if defined HAVE_CUBLAS && defined HAVE_NCCL
#include "common/clock.h"
#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/unit/hang.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/cuda/host/ops_cuda.h"

#define SIZES 6
static const size_t sizes[SIZES] = { 1, 5, 1000, 0, 16384, 40003 }; /* floats */

static const struct gpu gpu = { .name = "Fake", .capability = 90, .processors = 132 };

#define LATE 16

/* A rank with its device. */
struct rank {
	struct comm *comm;
	struct ops *ops;
	int me, world;
	float *zeros; /* on the device */
	struct late {
		float *p, *source;
		size_t count;
	} late[LATE];
	int late_count;
};

static int begin(struct rank *rank, struct comm *comm, struct err *err)
{
	*rank = (struct rank) { .comm = comm, .me = comm_rank(comm), .world = comm_size(comm) };
	rank->ops = ops_cuda_create_over(&fake_cublas_library, &gpu, GEMM_MODE_FP32, err);
	if (!rank->ops || comm_attach(comm, rank->ops->device, err) < 0)
		return -1;
	rank->zeros = rank->ops->device->alloc(rank->ops->device,
		(size_t)rank->world * sizes[SIZES - 1] * sizeof(float));
	return rank->zeros ? 0 : -1;
}

static float value_of(int from, int to, size_t at)
{
	return (float)(from * 1000 + to * 100 + (int)(at % 97) + 1);
}

/* Memory of either kind. That on the device gets its values by compute(). */
static float *make(struct rank *rank, bool device, size_t count, int from, int to)
{
	struct ops *ops = rank->ops;
	float *host = malloc(count * sizeof *host + 1);
	for (size_t i = 0; i < count; i++)
		host[i] = value_of(from, to, i);
	if (!device)
		return host;
	float *source = ops->device->alloc(ops->device, count * sizeof *host),
		  *p = ops->device->alloc(ops->device, count * sizeof *host);
	ops->device->copy_in(ops->device, source, host, count * sizeof *host);
	assert_true(rank->late_count < LATE);
	rank->late[rank->late_count++] = (struct late) { p, source, count };
	free(host); /* what is on the device stays to the end */
	return p;
}

/* Queues on the device what gives all that was made its values: none are there yet when this
 * returns. */
static void compute(struct rank *rank)
{
	for (int i = 0; i < rank->late_count; i++)
		rank->ops->add(rank->ops, rank->late[i].p, rank->late[i].source, rank->zeros,
			rank->late[i].count);
	rank->late_count = 0;
}

/* What it is now, for the host: malloc'ed. */
static float *fetch(struct rank *rank, bool device, const float *p, size_t count)
{
	float *host = malloc(count * sizeof *host + 1);
	if (device)
		rank->ops->device->copy_out(rank->ops->device, host, p, count * sizeof *host);
	else
		memcpy(host, p, count * sizeof *host);
	return host;
}

static int verify(struct rank *rank, bool device, const float *p, size_t count, int from, int to,
	struct err *err)
{
	float *host = fetch(rank, device, p, count);
	for (size_t i = 0; i < count; i++)
		if (host[i] != value_of(from, to, i))
			return err_set(err,
				"number %zu of %zu on the %s from rank %d to %d is %g instead of %g", i, count,
				device ? "device" : "host", from, to, (double)host[i],
				(double)value_of(from, to, i));
	free(host);
	return 0;
}

/* ---- what it carries ---- */

static int exchange(struct rank *rank, bool device, size_t count, struct err *err)
{
	struct comm_transfer transfers[2 * WORLD_MAX];
	float *out[WORLD_MAX], *in[WORLD_MAX];
	int n = 0;
	for (int peer = 0; peer < rank->world; peer++) {
		if (peer == rank->me)
			continue;
		out[peer] = make(rank, device, count, rank->me, peer);
		in[peer] = make(rank, device, count, 90, 90);
		transfers[n++] = (struct comm_transfer) { peer, out[peer], count * sizeof(float), 0 };
		transfers[n++] = (struct comm_transfer) { peer, in[peer], count * sizeof(float), 1 };
	}
	compute(rank);
	if (comm_wait(rank->comm, comm_exchange(rank->comm, "test", transfers, n, NULL, NULL), err) < 0)
		return -1;
	for (int peer = 0; peer < rank->world; peer++)
		if (peer != rank->me && verify(rank, device, in[peer], count, peer, rank->me, err) < 0)
			return -1;
	return 0;
}

static int gather(struct rank *rank, bool device, bool in_place, size_t count, struct err *err)
{
	size_t all_count = (size_t)rank->world * count;
	float *all = make(rank, device, all_count, 90, 90), *own = all + (size_t)rank->me * count;
	float *mine = make(rank, device, count, rank->me, 7);
	compute(rank);
	if (in_place && device)
		rank->ops->add(rank->ops, own, mine, rank->zeros, count);
	else if (in_place)
		memcpy(own, mine, count * sizeof *own);
	if (comm_wait(rank->comm,
			comm_allgather(rank->comm, "test", in_place ? own : mine, all, count * sizeof *all),
			err)
		< 0)
		return -1;
	for (int from = 0; from < rank->world; from++)
		if (verify(rank, device, all + (size_t)from * count, count, from, 7, err) < 0)
			return err_prefix(err, "all-gather%s", in_place ? " in place" : "");
	return 0;
}

static int broadcast(struct rank *rank, bool device, size_t count, int root, struct err *err)
{
	float *p = make(rank, device, count, rank->me == root ? root : 90, 8);
	compute(rank);
	if (comm_wait(rank->comm, comm_broadcast(rank->comm, "test", p, count * sizeof *p, root), err)
		< 0)
		return -1;
	return verify(rank, device, p, count, root, 8, err) < 0 ? err_prefix(err, "broadcast") : 0;
}

/* Sums of whole numbers are exact; in bf16 they are near, and the same on all ranks. */
static int sum(struct rank *rank, bool device, bool bf16, size_t count, struct err *err)
{
	float *p = make(rank, device, count, rank->me, 9),
		  *all = malloc((size_t)rank->world * count * sizeof *all + 1);
	compute(rank);
	comm_ticket ticket = bf16 ? comm_allreduce_bf16(rank->comm, "test", p, count)
							  : comm_allreduce(rank->comm, "test", p, count);
	if (comm_wait(rank->comm, ticket, err) < 0)
		return -1;
	float *host = fetch(rank, device, p, count);
	for (size_t i = 0; i < count; i++) {
		double exact = 0;
		for (int from = 0; from < rank->world; from++)
			exact += (double)value_of(from, 9, i);
		WORLD_CHECK(bf16 ? fabs((double)host[i] / exact - 1) < 0.01 * rank->world
						 : (double)host[i] == exact);
	}
	if (comm_wait(rank->comm, comm_allgather(rank->comm, "sums", host, all, count * sizeof *host),
			err)
		< 0)
		return -1;
	for (int from = 0; from < rank->world; from++)
		WORLD_CHECK(memcmp(all + (size_t)from * count, host, count * sizeof *host) == 0);
	return 0;
}

/* A reduction as ddp does it: pieces to the owner, who adds them, and sums to all. */
struct reducing {
	struct rank *rank;
	size_t count, made;
	float *numbers, *received; /* [world · count] */
};

static int add_pieces(void *arg, size_t first, size_t bytes, struct err *err)
{
	struct reducing *r = arg;
	size_t at = first / sizeof(float), count = bytes / sizeof(float);
	float *own = r->numbers + (size_t)r->rank->me * r->count + at;
	WORLD_CHECK(at == r->made);
	for (int peer = 0; peer < r->rank->world; peer++)
		if (peer != r->rank->me)
			r->rank->ops->add(r->rank->ops, own, own, r->received + (size_t)peer * r->count + at,
				count);
	r->made += count;
	return 0;
}

static comm_ticket reduce(struct reducing *r)
{
	struct comm_transfer pieces[2 * WORLD_MAX], sums[2 * WORLD_MAX];
	size_t bytes = r->count * sizeof(float);
	int n = 0;
	for (int peer = 0; peer < r->rank->world; peer++) {
		float *theirs = r->numbers + (size_t)peer * r->count;
		if (peer == r->rank->me)
			continue;
		pieces[n] = (struct comm_transfer) { peer, theirs, bytes, 0 };
		sums[n++] =
			(struct comm_transfer) { peer, r->numbers + (size_t)r->rank->me * r->count, bytes, 0 };
		pieces[n] =
			(struct comm_transfer) { peer, r->received + (size_t)peer * r->count, bytes, 1 };
		sums[n++] = (struct comm_transfer) { peer, theirs, bytes, 1 };
	}
	return comm_reduce(r->rank->comm, "sums",
		&(struct comm_reduction) { .pieces = pieces,
			.piece_count = n,
			.sums = sums,
			.sum_count = n,
			.add = add_pieces,
			.arg = r });
}

struct adding {
	struct rank *rank;
	float *to, *from;
	size_t count;
};

static int add_numbers(void *arg, struct err *err)
{
	const struct adding *a = arg;
	a->rank->ops->add(a->rank->ops, a->to, a->from, a->rank->zeros, a->count);
	return 0;
}

/* Work on the device comes after what was queued before it, and done when its ticket is. */
static int work(struct rank *rank, size_t count, struct err *err)
{
	struct adding adding = { .rank = rank, .count = count };
	adding.from = make(rank, true, count, 5, 6);
	adding.to = make(rank, true, count, 90, 90);
	compute(rank);
	if (comm_wait(rank->comm, comm_call(rank->comm, "test", add_numbers, &adding), err) < 0)
		return -1;
	return verify(rank, true, adding.to, count, 5, 6, err) < 0 ? err_prefix(err, "work") : 0;
}

#define QUEUED 5

/* Several after each other, all with one place for what is received, as buckets have it; host
 * memory between them. */
static int reduce_in_turn(struct rank *rank, struct err *err)
{
	struct reducing r[QUEUED];
	int all[QUEUED][WORLD_MAX];
	comm_ticket last = 0;
	float *received = rank->ops->device->alloc(rank->ops->device,
		(size_t)rank->world * sizes[SIZES - 1] * sizeof(float));
	struct late late[QUEUED];
	for (int i = 0; i < QUEUED; i++) {
		r[i] = (struct reducing) { .rank = rank,
			.count = sizes[(i + 2) % SIZES],
			.received = received };
		r[i].numbers = make(rank, true, (size_t)rank->world * r[i].count, rank->me, i);
		late[i] = rank->late[i];
	}
	for (int i = 0; i < QUEUED; i++) {
		rank->late[0] = late[i];
		rank->late_count = 1;
		compute(rank);
		last = reduce(&r[i]);
		if (i % 2)
			last = comm_allgather(rank->comm, "between", &rank->me, all[i], sizeof rank->me);
	}
	if (comm_wait(rank->comm, last, err) < 0)
		return -1;
	for (int i = 0; i < QUEUED; i++) {
		float *host = fetch(rank, true, r[i].numbers, (size_t)rank->world * r[i].count);
		for (size_t k = 0; k < (size_t)rank->world * r[i].count; k++) {
			float exact = 0;
			for (int from = 0; from < rank->world; from++)
				exact += value_of(from, i, k);
			WORLD_CHECK(host[k] == exact);
		}
		for (int peer = 0; peer < rank->world && i % 2; peer++)
			WORLD_CHECK(all[i][peer] == peer);
		free(host);
	}
	return 0;
}

#define PASSES 1000

/* What this rank's device computes before an operation is no communication. */
static int time_operations(struct rank *rank, struct err *err)
{
	const size_t count = sizes[SIZES - 1];
	float *p = make(rank, true, count, 1, 2);
	compute(rank);
	double busy = comm_busy(rank->comm), begun = clock_now();
	for (int i = 0; i < PASSES; i++)
		rank->ops->add(rank->ops, p, p, rank->zeros, count);
	if (comm_wait(rank->comm, comm_broadcast(rank->comm, "test", p, sizeof *p, 0), err) < 0)
		return -1;
	double all = clock_now() - begun;
	busy = comm_busy(rank->comm) - busy;
	if (rank->me == 0 && busy > all / 2)
		return err_set(err, "of %.3f s %.3f count as communication", all, busy);
	return 0;
}

static int carry_all(struct rank *rank, bool device, size_t count, struct err *err)
{
	if (exchange(rank, device, count, err) < 0)
		return -1;
	for (int in_place = 0; in_place < 2; in_place++)
		if (gather(rank, device, in_place, count / (size_t)rank->world, err) < 0)
			return -1;
	for (int root = 0; root < rank->world; root++)
		if (broadcast(rank, device, count, root, err) < 0)
			return -1;
	return sum(rank, device, false, count, err) < 0 || sum(rank, device, true, count, err) < 0 ? -1
																							   : 0;
}

static int body_carry(struct comm *comm, void *arg, struct err *err)
{
	struct rank rank;
	fake_stream_order(*(enum fake_order *)arg, (uint64_t)comm_rank(comm));
	if (begin(&rank, comm, err) < 0)
		return -1;
	for (int i = 0; i < SIZES; i++)
		if (carry_all(&rank, true, sizes[i], err) < 0 || carry_all(&rank, false, sizes[i], err) < 0)
			return -1;
	if (reduce_in_turn(&rank, err) < 0 || work(&rank, sizes[SIZES - 1], err) < 0
		|| (*(enum fake_order *)arg == FAKE_LAZY && time_operations(&rank, err) < 0))
		return -1;
	WORLD_CHECK(
		strcmp(comm_provider(comm), "nccl") == 0 && strcmp(comm_library(comm), "NCCL 2.28.9") == 0);
	WORLD_CHECK(fake_nccl.calls > 0 && fake_runtime.awaits > 0);
	return device_check(rank.ops->device, err);
}

static void all_kinds_of_memory_are_carried(void **state)
{
	static const enum fake_order orders[] = { FAKE_LAZY, FAKE_RANDOM, FAKE_EAGER };
	struct world_rank ranks[WORLD_MAX];
	for (int i = 0; i < 3; i++) {
		world_run(2 + i, 30, body_carry, (void *)(uintptr_t)&orders[i], ranks);
		world_assert_ok(2 + i, ranks);
	}
}

/* Without the start events what was there before is sent: the stand-ins see that. */
static int body_deaf(struct comm *comm, void *arg, struct err *err)
{
	struct rank rank;
	struct err wrong;
	fake_stream_order(FAKE_LAZY, 0);
	if (begin(&rank, comm, err) < 0)
		return -1;
	fake_runtime.deaf = true;
	WORLD_CHECK(exchange(&rank, true, 1000, &wrong) < 0 && strstr(wrong.text, " instead of "));
	return 0;
}

static void a_missing_start_event_is_seen(void **state)
{
	struct world_rank ranks[2];
	world_run(2, 30, body_deaf, NULL, ranks);
	world_assert_ok(2, ranks);
}

/* ---- how it ends ---- */

enum fault { NOTHING, KILLED, STOPPED, HANGING, ERROR, FAILING, ABORTED };

struct doom {
	enum fault fault;
	int victim;
	ncclResult_t error;
};

static int fail_work(void *arg, struct err *err)
{
	return err_fail(err, EXIT_DATA, "the disk is on fire");
}

static void strike(struct rank *rank, const struct doom *doom)
{
	if (doom->fault == ERROR)
		fake_nccl.error_at = fake_nccl.calls + 1, fake_nccl.error = doom->error;
	if (rank->me != doom->victim)
		return;
	if (doom->fault == KILLED || doom->fault == STOPPED)
		raise(doom->fault == KILLED ? SIGKILL : SIGSTOP);
	if (doom->fault == HANGING)
		fake_nccl.hang_at = fake_nccl.calls + 1;
	if (doom->fault == FAILING)
		comm_call(rank->comm, "combination", fail_work, NULL);
	if (doom->fault == ABORTED)
		comm_abort(rank->comm, "the disk is on fire");
}

/* Reductions for ever; at the third the victim comes to its end. */
static int body_doom(struct comm *comm, void *arg, struct err *err)
{
	struct rank rank;
	struct err again;
	if (begin(&rank, comm, err) < 0)
		return -1;
	struct reducing r = { .rank = &rank, .count = 20000 };
	r.numbers = make(&rank, true, (size_t)rank.world * r.count, 0, 0);
	r.received = make(&rank, true, (size_t)rank.world * r.count, 0, 0);
	compute(&rank);
	for (int i = 0; i < 100; i++) {
		r.made = 0;
		if (i == 3)
			strike(&rank, arg);
		if (comm_wait(comm, reduce(&r), err) == 0)
			continue;
		WORLD_CHECK(comm_wait(comm, comm_call(comm, "later", NULL, NULL), &again) < 0
			&& strcmp(again.text, err->text) == 0);
		WORLD_CHECK(fake_nccl.communicators == 0 && fake_nccl.aborted == 1);
		return -1;
	}
	return err_set(err, "nothing has failed");
}

static void check_doom(int size, double deadline, struct doom doom, const char *words)
{
	struct world_rank ranks[WORLD_MAX];
	char victim[20];
	snprintf(victim, sizeof victim, "rank %d on here", doom.victim);
	world_run(size, deadline, body_doom, &doom, ranks);
	for (int i = 0; i < size; i++) {
		bool own = i == doom.victim && (doom.fault == FAILING || doom.fault == ABORTED);
		if (i == doom.victim && (doom.fault == KILLED || doom.fault == STOPPED))
			continue;
		print_message("# rank %d after %.1f s: %s\n", i, ranks[i].seconds, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, own && doom.fault == FAILING ? EXIT_DATA : EXIT_LOST);
		if (!own && doom.fault != HANGING && doom.fault != ERROR)
			world_assert_names(&ranks[i], victim);
		world_assert_names(&ranks[i], words);
		assert_true(ranks[i].seconds < 25 * SLOWER);
	}
}

static void a_dead_rank_is_named_at_once(void **state)
{
	check_doom(3, 30, (struct doom) { .fault = KILLED, .victim = 1 }, "is gone");
	check_doom(2, 30, (struct doom) { .fault = KILLED, .victim = 0 }, "is gone");
}

static void a_stopped_rank_is_named_at_the_deadline(void **state)
{
	check_doom(3, 1.5, (struct doom) { .fault = STOPPED, .victim = 2 },
		"nothing was heard of rank 2 on here");
}

/* Of a GPU that gets on no more nobody can tell whose it is; but all end. */
static void a_hanging_gpu_ends_all_at_the_deadline(void **state)
{
	check_doom(3, 1.5, (struct doom) { .fault = HANGING, .victim = 1 }, "no progress for");
}

static void what_nccl_knows_is_told_at_once(void **state)
{
	check_doom(2, 30, (struct doom) { ERROR, 1, ncclRemoteError }, "remote process exited");
	check_doom(2, 30, (struct doom) { ERROR, 1, ncclSystemError }, "system error");
}

static void a_rank_that_gives_up_says_why(void **state)
{
	check_doom(3, 30, (struct doom) { .fault = FAILING, .victim = 1 }, "the disk is on fire");
	check_doom(3, 30, (struct doom) { .fault = ABORTED, .victim = 2 }, "the disk is on fire");
}

/* ---- opening ---- */

static int body_never(struct comm *comm, void *arg, struct err *err)
{
	return err_set(err, "it has opened");
}

/* All ranks say what one of them lacks, though they are connected by then. */
static void a_rank_without_a_gpu_is_told_by_all(void **state)
{
	struct world_rank ranks[3];
	fake_nccl.no_gpu = true;
	world_run(3, 60, body_never, NULL, ranks);
	fake_nccl.no_gpu = false;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, EXIT_USAGE);
		world_assert_names(&ranks[i], "nccl: couldn't find a GPU");
		assert_true(ranks[i].seconds < 30 * SLOWER);
	}
}

static int body_attach(struct comm *comm, void *arg, struct err *err)
{
	struct rank rank;
	WORLD_CHECK(begin(&rank, comm, err) < 0 && err->status == EXIT_USAGE
		&& strstr(err->text, "host's memory only"));
	return 0;
}

static void tcp_carries_no_devices_memory(void **state)
{
	struct world_rank ranks[2];
	world_provider = NULL;
	world_run(2, 20, body_attach, NULL, ranks);
	world_provider = &comm_nccl;
	world_assert_ok(2, ranks);
}

static int set_up(void **state)
{
	world_provider = &comm_nccl;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_kinds_of_memory_are_carried),
		cmocka_unit_test(a_missing_start_event_is_seen),
		cmocka_unit_test(a_dead_rank_is_named_at_once),
		cmocka_unit_test(a_stopped_rank_is_named_at_the_deadline),
		cmocka_unit_test(a_hanging_gpu_ends_all_at_the_deadline),
		cmocka_unit_test(what_nccl_knows_is_told_at_once),
		cmocka_unit_test(a_rank_that_gives_up_says_why),
		cmocka_unit_test(a_rank_without_a_gpu_is_told_by_all),
		cmocka_unit_test(tcp_carries_no_devices_memory),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no communicator for GPUs")
#endif
