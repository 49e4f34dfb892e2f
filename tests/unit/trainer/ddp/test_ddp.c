/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism over real processes: gradients, loss and norm have the same bits at every world
 * size, for every bucket size, and they are those of the recursive tree, computed directly. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "order/tree.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_work.h"
#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_plan.h"

/* The own elements are reduced; spread they are everywhere. */
static int check_zero(struct ddp *ddp, struct comm *comm, const struct ddp_work *job, uint64_t step,
	struct err *err)
{
	size_t elements = job->table.elements, bytes = elements * sizeof(float), count;
	const struct zero_shard *own = ddp_own(ddp, &count);
	float *all = calloc(elements, sizeof *all);
	double exposed = 0;

	WORLD_CHECK(own && all);
	for (size_t i = 0; i < count; i++) {
		WORLD_CHECK(
			own[i].rank == comm_rank(comm) && own[i].first < own[i].end && own[i].end <= elements);
		memcpy(all + own[i].first, ddp_grads(ddp) + own[i].first,
			(own[i].end - own[i].first) * sizeof *all);
	}
	ddp_allgather_weights(ddp, all);
	if (ddp_whole(ddp, &exposed, err) < 0)
		return -1;
	WORLD_CHECK(memcmp(all, job->grads[step], bytes) == 0 && exposed >= 0);
	free(all);
	return 0;
}

static int body_canonical(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	uint64_t world = (uint64_t)comm_size(comm);
	struct ddp *ddp = ddp_work_create(comm, job, err);

	if (!ddp)
		return -1;
	for (uint64_t step = 0; step < STEPS; step++) {
		struct ddp_result result;
		double loss = 0;

		struct ddp_control control = ddp_work_control(comm, step);
		control.save =
			comm_rank(comm) == 0 ? step == 1 : step == 0; /* only rank 0 is listened to */
		if (ddp_work_run_step(ddp, job, step, control, &result, err) < 0)
			return -1;
		WORLD_CHECK(result.save == (step == 1));
		for (int slot = 0; slot < job->slots; slot++)
			loss += ddp_work_slot_loss(step, slot);
		if (job->zero && check_zero(ddp, comm, job, step, err) < 0)
			return -1;
		for (size_t i = 0; !job->zero && i < job->table.elements; i++)
			if (memcmp(&ddp_grads(ddp)[i], &job->grads[step][i], sizeof(float)) != 0)
				return err_set(err, "element %zu of step %d is %a, not %a", i, (int)step,
					(double)ddp_grads(ddp)[i], (double)job->grads[step][i]);
		WORLD_CHECK(result.norm == job->norm[step] && result.nonfinite == -1);
		WORLD_CHECK(result.loss == loss / (double)job->valid);
		WORLD_CHECK(result.valid == job->valid);
		WORLD_CHECK(result.stop == 0 && result.fault == 0 && result.fault_rank == -1);
		WORLD_CHECK(result.sample_hash == 1000 * world + world * (world - 1) / 2);
		WORLD_CHECK(result.waited_most.rank == (world > 1)
			&& result.waited_most.seconds == (world > 1 ? 8 : 3.5));
		WORLD_CHECK(result.waited_least.rank == (world > 6 ? (int)world - 1 : 0));
	}
	ddp_destroy(ddp);
	return 0;
}

static void check_worlds(int slots, size_t bucket_bytes, const int *worlds, int count)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, slots, bucket_bytes, 0);
	for (int i = 0; i < count; i++) {
		world_run(worlds[i], 30, body_canonical, &job, ranks);
		world_assert_ok(worlds[i], ranks);
	}
	ddp_work_free(&job);
}

#define WORLDS(...) (const int[]) { __VA_ARGS__ }, sizeof(const int[]) { __VA_ARGS__ } / sizeof(int)

static void test_single(void **state)
{
	for (int slots = 1; slots <= 8; slots++)
		check_worlds(slots, 300000, WORLDS(1));
}

static void test_powers_of_two(void **state)
{
	check_worlds(8, 25 << 20, WORLDS(1, 2, 4, 8));
	check_worlds(8, 70000, WORLDS(2, 4, 8));
	check_worlds(16, 500000, WORLDS(4));
}

/* Several pieces a rank, and ranks with unequal numbers of slots. */
static void test_any_world(void **state)
{
	check_worlds(8, 300000, WORLDS(3, 5, 6, 7));
	check_worlds(7, 25 << 20, WORLDS(2, 3, 7));
	check_worlds(12, 200000, WORLDS(5));
	check_worlds(27, 1 << 20, WORLDS(4));
	check_worlds(40, 1 << 20, WORLDS(COMM_DIRECT + 4));
	check_worlds(16, 500000, WORLDS(3, 5));
}

/* With zero each rank has the same bits of what it owns, and the same norm, wherever buckets and
 * segments are cut. */
static void test_zero(void **state)
{
	static const struct {
		int slots;
		size_t bucket;
		int world;
	} cases[] = {
		{ 8, 25 << 20, 1 },
		{ 8, 25 << 20, 4 },
		{ 8, 70000, 2 },
		{ 8, 300000, 3 },
		{ 16, 500000, 5 },
		{ 8, 1, 8 },
	};
	struct world_rank ranks[WORLD_MAX];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ddp_work job;

		ddp_work_make(&job, cases[i].slots, cases[i].bucket, 0);
		job.zero = 1;
		world_run(cases[i].world, 30, body_canonical, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		ddp_work_free(&job);
	}
}

/* A world over nodes: as many ranks on each as can be, or one, two, ... more on each than on the
 * next; with and without zero; and with ranks of a node that follow each other or not. */
static void check_nodes(struct ddp_work *job, int world, int nodes)
{
	struct world_rank ranks[WORLD_MAX];

	job->nodes = nodes;
	for (job->larger = 0; job->larger < 3 && job->larger * nodes * (nodes - 1) / 2 + nodes <= world;
		 job->larger++)
		for (int way = 0; way < 4; way++) {
			job->zero = way % 2;
			job->spread = way / 2;
			world_run(world, 30, body_canonical, job, ranks);
			world_assert_ok(world, ranks);
			if (nodes == 1)
				return;
		}
}

/* The bits do not depend on which ranks share a node: evenly or not, where a node's slots are one
 * node of the tree or several, with small buckets and with large ones. */
static void test_nodes(void **state)
{
	static const size_t buckets[] = { 25 << 20, 90000 };
	const bool all = getenv("MUSTER_LONG") && *getenv("MUSTER_LONG");
	struct ddp_work job;

	for (int i = 0; i < 2; i++) {
		ddp_work_make(&job, 16, buckets[i], 0);
		for (int world = all ? 1 : 3; world <= (all ? 16 : 6); world++)
			for (int nodes = all ? 1 : 2; nodes <= 4 && nodes < world; nodes++)
				check_nodes(&job, world, nodes);
		ddp_work_free(&job);
	}
}

static int body_nonfinite(struct comm *comm, void *arg, struct err *err)
{
	const struct ddp_work *job = arg;
	const struct tensor *row = &job->table.rows[4];
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_result result;
	int first;

	if (!ddp)
		return -1;
	first = ddp_first_slot(ddp);
	ddp_begin(ddp, 0);
	for (int slot = first; slot < first + ddp_slot_count(ddp); slot++) {
		float *grads = ddp_slot_grads(ddp, slot);

		for (int layer = 0; layer < LAYERS; layer++)
			ddp_work_fill_layer(&job->table, grads, 0, slot, layer);
		grads[job->table.rows[1].offset + job->table.rows[1].count] =
			NAN; /* padding does not count */
		if (slot == job->slots - 1)
			grads[row->offset + row->count - 1] = -INFINITY;
		*ddp_slot_loss(ddp, slot) = ddp_work_slot_loss(0, slot);
		ddp_slot_end(ddp, VALID + slot);
	}
	struct ddp_control control = ddp_work_control(comm, 0);
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(!isfinite(result.norm) && result.nonfinite == 4);
	ddp_destroy(ddp);
	return 0;
}

/* Whichever rank owns it, all know the first tensor whose gradient is not finite. */
static void test_nonfinite(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 4, 300000, 0);
	for (job.zero = 0; job.zero < 2; job.zero++) {
		world_run(3, 30, body_nonfinite, &job, ranks);
		world_assert_ok(3, ranks);
	}
	ddp_work_free(&job);
}

/* The head's part of an embedding is summed by itself, and added at every world size. */
static void test_split_embedding(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make_split(&job, 8, 60000, 0, true);
	for (int world = 1; world <= 5; world++) {
		job.zero = world % 2 == 0 || world == 5;
		job.nodes = world > 3 ? 2 : 0;
		world_run(world, 30, body_canonical, &job, ranks);
		world_assert_ok(world, ranks);
	}
	ddp_work_free(&job);
}

static int body_native(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_result result;

	if (!ddp || ddp_work_run_step(ddp, job, 0, ddp_work_control(comm, 0), &result, err) < 0)
		return -1;
	for (size_t i = 0; i < job->table.elements; i++)
		WORLD_CHECK(fabsf(ddp_grads(ddp)[i] - job->grads[0][i]) <= 1e-5f * job->magnitude[i]);
	WORLD_CHECK(fabs(result.norm - job->norm[0]) < 1e-6 * job->norm[0]);
	ddp_destroy(ddp);
	return 0;
}

static void test_native_is_close(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 8, 200000, 1);
	for (int size = 1; size <= 4; size++) {
		world_run(size, 30, body_native, &job, ranks);
		world_assert_ok(size, ranks);
	}
	ddp_work_free(&job);
}

/* ---- measuring ---- */

/* Each rank ends up with the sum of its own slots, whatever the other ranks have, and still learns
 * losses and flags of all. */
static int body_alone(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp_config config = { .slots = job->slots,
		.bucket_bytes = job->bucket_bytes,
		.native = job->native,
		.comm = DDP_COMM_NONE };
	struct ddp *ddp = ddp_create(comm, job->ops, &job->table, &config, err);
	struct ddp_control control = ddp_work_control(comm, 0);
	struct ddp_result result;

	control.stop = comm_rank(comm) == 1 ? SIGTERM : 0;
	if (!ddp || ddp_work_run_step(ddp, job, 0, control, &result, err) < 0)
		return -1;
	WORLD_CHECK(result.valid == job->valid && result.stop == SIGTERM && ddp_grads(ddp));
	int first = ddp_first_slot(ddp), end = first + ddp_slot_count(ddp);
	for (size_t i = 0; i < job->table.elements; i++) {
		double sum = 0, magnitude = 0;

		for (int slot = first; slot < end && job->grads[0][i] != 0; slot++) {
			sum += (double)ddp_work_gradient(0, slot, i);
			magnitude += fabs((double)ddp_work_gradient(0, slot, i));
		}
		WORLD_CHECK(fabs((double)ddp_grads(ddp)[i] - sum) <= 1e-6 * magnitude);
	}
	ddp_destroy(ddp);
	return 0;
}

static void test_alone(void **state)
{
	static const struct {
		int slots, native, world;
	} cases[] = { { 8, 0, 2 }, { 8, 0, 3 }, { 8, 1, 3 } };
	struct world_rank ranks[WORLD_MAX];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ddp_work job;

		ddp_work_make(&job, cases[i].slots, 300000, cases[i].native);
		world_run(cases[i].world, 30, body_alone, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		ddp_work_free(&job);
	}
}

/* ---- while the backward pass goes on ---- */

/* With the last slot's first two layers ready, their buckets are reduced before the other layers
 * exist. */
static int body_overlap(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	size_t early = 0;

	if (!ddp)
		return -1;
	int first = ddp_first_slot(ddp), last = first + ddp_slot_count(ddp) - 1;
	ddp_begin(ddp, 0);
	for (int slot = first; slot < last; slot++)
		ddp_work_train_slot(ddp, job, 0, slot);
	float *grads = ddp_slot_grads(ddp, last);
	for (int layer = 0; layer < LAYERS; layer++) {
		ddp_work_fill_layer(&job->table, grads, 0, last, layer);
		ddp_ready(ddp, layer);
		if (layer == 1) {
			if (comm_wait(comm, comm_call(comm, "marker", NULL, NULL), err) < 0)
				return -1;
			while (early < job->table.elements && ddp_grads(ddp)[early] == job->grads[0][early])
				early++;
			WORLD_CHECK(early >= job->table.rows[1].offset + job->table.rows[1].count);
			WORLD_CHECK(early < job->table.rows[4].offset + job->table.rows[4].count);
		}
	}
	ddp_slot_end(ddp, 1);
	struct ddp_control control = ddp_work_control(comm, 0);
	struct ddp_result result;
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	return 0;
}

static void test_overlap(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 4, 100000, 0);
	world_run(2, 30, body_overlap, &job, ranks);
	world_assert_ok(2, ranks);
	ddp_work_free(&job);
}

/* 16 slots on 3 ranks are 6, 5 and 5: after one slot rank 2 has finished [11], after two rank 1 [6,
 * 8), after four rank 0 [0, 4) and rank 1 [8, 10). All of that travels without anyone's last slot.
 */
static int body_early(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_control control = ddp_work_control(comm, 0);
	struct ddp_result result;

	if (!ddp)
		return -1;
	int first = ddp_first_slot(ddp), last = first + ddp_slot_count(ddp) - 1;
	comm_ticket before = comm_call(comm, "before", NULL, NULL);
	ddp_begin(ddp, 0);
	for (int slot = first; slot < last; slot++)
		ddp_work_train_slot(ddp, job, 0, slot);
	comm_ticket after = comm_call(comm, "after", NULL, NULL);
	WORLD_CHECK(after - before == 1 + 3 * (comm_ticket)ddp_buckets(ddp));
	/* Nobody begins the last slot before all have what was sent until now. */
	char all[3] = "";
	if (comm_wait(comm, comm_allgather(comm, "arrived", "x", all, 1), err) < 0)
		return -1;
	ddp_work_train_slot(ddp, job, 0, last);
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(memcmp(ddp_grads(ddp), job->grads[0], job->table.elements * sizeof(float)) == 0);
	ddp_destroy(ddp);
	return 0;
}

static void test_early_pieces(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 16, 500000, 0);
	world_run(3, 30, body_early, &job, ranks);
	world_assert_ok(3, ranks);
	ddp_work_free(&job);
}

/* Where a rank has one piece it sends the bytes of a ring; 8 slots on 3 ranks are 3, 3, 2 in 2, 2
 * and 1 pieces, and half of a ring's bytes are pieces. */
static int body_cost(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	int world = comm_size(comm);
	struct ddp *ddp = ddp_work_create(comm, job, err);

	if (!ddp)
		return -1;
	struct ddp_cost cost = ddp_cost(ddp);
	double arena = (double)(job->table.elements * sizeof(float)),
		   ring = 2.0 * (world - 1) / world * arena;
	bool uneven = world == 3;

	WORLD_CHECK(cost.most == (uneven ? 3 : 8 / world) && cost.least == (uneven ? 2 : 8 / world));
	WORLD_CHECK(fabs(cost.uneven - (uneven ? 0.125 : 0)) < 1e-12);
	WORLD_CHECK(fabs((double)cost.ring - ring) < 0.01 * ring);
	WORLD_CHECK(uneven && !job->native ? fabs((double)cost.sent - 1.5 * ring) < 0.01 * ring
									   : cost.sent == cost.ring);
	ddp_destroy(ddp);
	return 0;
}

static void test_cost(void **state)
{
	struct world_rank ranks[WORLD_MAX];

	for (int native = 0; native <= 1; native++) {
		struct ddp_work job;

		ddp_work_make(&job, 8, 1 << 20, native);
		for (int world = 2; world <= 4; world++) {
			world_run(world, 30, body_cost, &job, ranks);
			world_assert_ok(world, ranks);
		}
		ddp_work_free(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_powers_of_two),
		cmocka_unit_test(test_any_world),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_nonfinite),
		cmocka_unit_test(test_split_embedding),
		cmocka_unit_test(test_native_is_close),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_early_pieces),
		cmocka_unit_test(test_cost),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
