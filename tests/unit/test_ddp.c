/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism over real processes: gradients, loss and norm have the same bits at every world size, for every bucket
 * size, and they are those of the recursive tree, computed directly. And a rank that goes its own way is found out. */
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

#include "tests/unit/ddp_table.h"
#include "tests/unit/world_fixture.h"
#include "trainer/ddp.h"
#include "trainer/ddp_plan.h"
#include "trainer/tree.h"

#define STEPS 2
#define VALID 37 /* tokens counted in a slot; slot s has VALID + s */

/* What a world computes, and what must come out; filled in before the fork. */
struct job {
	struct tensor_table table;
	struct ops *ops;
	int slots;
	size_t bucket_bytes;
	int native, zero;
	float *grads[STEPS];    /* the direct sums */
	float *magnitude;       /* sum of |g| of step 0, the scale of rounding errors */
	double loss, norm[STEPS];
	int64_t valid;
};

/* A gradient whose sums round: magnitudes over many powers of two. */
static float gradient(uint64_t step, int slot, size_t at)
{
	uint64_t v = (at + 1) * 0x9e3779b97f4a7c15u + (uint64_t)slot * 0xff51afd7ed558ccdu + step * 0xc4ceb9fe1a85ec53u;

	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdu;
	v ^= v >> 29;
	return ldexpf((float)((int32_t)(v >> 32)) / 2147483648.0f, (int)(v % 9) - 4);
}

static double slot_loss(uint64_t step, int slot)
{
	return 100.0 + gradient(step, slot, 12345) / 3.0;
}

static void fill_layer(const struct tensor_table *table, float *arena, uint64_t step, int slot, int layer)
{
	size_t head = table->split_count ? table->rows[table->count - 1].count : 0; /* padding stays zero here, too */

	for (size_t j = table->elements; layer == 0 && j < table->elements + head; j++)
		arena[j] = gradient(step, slot, j);
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];

		for (size_t j = row->offset; row->layer == layer && j < row->offset + row->count; j++)
			arena[j] = gradient(step, slot, j);
	}
}

/* Node (level, index) of the tree, word for word, over whole arenas. */
static float *direct(const struct job *job, uint64_t step, int level, int index)
{
	size_t elements = tensor_table_gradients(&job->table);

	if (level == 0) {
		float *leaf = calloc(elements, sizeof *leaf);
		for (int layer = 0; layer < LAYERS; layer++)
			fill_layer(&job->table, leaf, step, index, layer);
		return leaf;
	}
	float *left = direct(job, step, level - 1, 2 * index);
	if ((2 * index + 1) << (level - 1) < job->slots) {
		float *right = direct(job, step, level - 1, 2 * index + 1);
		for (size_t i = 0; i < elements; i++)
			left[i] = left[i] + right[i];
		free(right);
	}
	return left;
}

/* Blocks of the logical elements of each tensor, added in order. */
static double direct_norm(const struct job *job, const float *grads)
{
	double squares = 0;

	for (int i = 0; i < job->table.count; i++) {
		const struct tensor *row = &job->table.rows[i];
		for (size_t at = 0; at < row->count; at += NORM_BLOCK) {
			double block;
			job->ops->square_sums(job->ops, &block, grads + row->offset + at,
				row->count - at < NORM_BLOCK ? row->count - at : NORM_BLOCK);
			squares += block;
		}
	}
	return sqrt(squares);
}

static void make_split_job(struct job *job, int slots, size_t bucket_bytes, int native, bool split)
{
	struct err err;
	int level = 0;

	memset(job, 0, sizeof *job);
	make_table(&job->table);
	if (split)
		split_last(&job->table);
	job->ops = ops_cpu_create(true, &err);
	assert_non_null(job->ops);
	job->slots = slots;
	job->bucket_bytes = bucket_bytes;
	job->native = native;
	while (1 << level < slots)
		level++;
	for (uint64_t step = 0; step < STEPS; step++) {
		job->grads[step] = direct(job, step, level, 0);
		for (size_t i = 0; i < job->table.split_count; i++)
			job->grads[step][job->table.split_offset + i] += job->grads[step][job->table.elements + i];
		job->norm[step] = direct_norm(job, job->grads[step]);
	}
	job->magnitude = calloc(job->table.elements, sizeof(float));
	for (int slot = 0; slot < slots; slot++) {
		for (size_t i = 0; i < job->table.elements; i++)
			job->magnitude[i] += fabsf(gradient(0, slot, i));
		job->valid += VALID + slot;
	}
}

static void make_job(struct job *job, int slots, size_t bucket_bytes, int native)
{
	make_split_job(job, slots, bucket_bytes, native, false);
}

static void free_job(struct job *job)
{
	job->ops->destroy(job->ops);
	tensor_table_clear(&job->table);
	for (int step = 0; step < STEPS; step++)
		free(job->grads[step]);
	free(job->magnitude);
}

/* ---- one step as the training loop does it ---- */

static void train_slot(struct ddp *ddp, const struct job *job, uint64_t step, int slot)
{
	float *grads = ddp_slot_grads(ddp, slot);

	for (int layer = 0; layer < LAYERS; layer++) {
		fill_layer(&job->table, grads, step, slot, layer);
		ddp_ready(ddp, layer);
	}
	ddp_slot_end(ddp, slot_loss(step, slot), VALID + slot);
}

static int run_step(struct ddp *ddp, const struct job *job, uint64_t step, struct ddp_control control,
	struct ddp_result *result, struct err *err)
{
	int first = ddp_first_slot(ddp), count = ddp_slot_count(ddp);

	ddp_begin(ddp, step);
	for (int slot = first; slot < first + count; slot++)
		train_slot(ddp, job, step, slot);
	return ddp_finish(ddp, &control, result, err);
}

static struct ddp *create(struct comm *comm, const struct job *job, struct err *err)
{
	struct ddp_config config = { .slots = job->slots, .bucket_bytes = job->bucket_bytes, .native = job->native,
		.zero = job->zero };

	return ddp_create(comm, job->ops, &job->table, &config, err);
}

static struct ddp_control control_for(struct comm *comm, uint64_t step)
{
	return (struct ddp_control){ .step = step, .sample_hash = 1000 + (uint64_t)comm_rank(comm),
		.waited = comm_rank(comm) ? 9 - comm_rank(comm) : 3.5 };
}

/* The own elements are reduced; spread they are everywhere. */
static int check_zero(struct ddp *ddp, struct comm *comm, const struct job *job, uint64_t step, struct err *err)
{
	size_t elements = job->table.elements, bytes = elements * sizeof(float), count;
	const struct zero_shard *own = ddp_own(ddp, &count);
	float *all = calloc(elements, sizeof *all);
	double exposed = 0;

	WORLD_CHECK(own && all);
	for (size_t i = 0; i < count; i++) {
		WORLD_CHECK(own[i].rank == comm_rank(comm) && own[i].first < own[i].end && own[i].end <= elements);
		memcpy(all + own[i].first, ddp_grads(ddp) + own[i].first, (own[i].end - own[i].first) * sizeof *all);
	}
	ddp_spread(ddp, all);
	if (ddp_whole(ddp, &exposed, err) < 0)
		return -1;
	WORLD_CHECK(memcmp(all, job->grads[step], bytes) == 0 && exposed >= 0);
	free(all);
	return 0;
}

static int body_canonical(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	uint64_t world = (uint64_t)comm_size(comm);
	struct ddp *ddp = create(comm, job, err);

	if (!ddp)
		return -1;
	for (uint64_t step = 0; step < STEPS; step++) {
		struct ddp_result result;
		double loss = 0;

		struct ddp_control control = control_for(comm, step);
		control.save = comm_rank(comm) == 0 ? step == 1 : step == 0; /* only rank 0 is listened to */
		if (run_step(ddp, job, step, control, &result, err) < 0)
			return -1;
		WORLD_CHECK(result.save == (step == 1));
		for (int slot = 0; slot < job->slots; slot++)
			loss += slot_loss(step, slot);
		if (job->zero && check_zero(ddp, comm, job, step, err) < 0)
			return -1;
		for (size_t i = 0; !job->zero && i < job->table.elements; i++)
			if (memcmp(&ddp_grads(ddp)[i], &job->grads[step][i], sizeof(float)) != 0)
				return err_set(err, "element %zu of step %d is %a, not %a", i, (int)step, (double)ddp_grads(ddp)[i],
					(double)job->grads[step][i]);
		WORLD_CHECK(result.norm == job->norm[step] && result.nonfinite == -1);
		WORLD_CHECK(result.loss == loss / (double)job->valid);
		WORLD_CHECK(result.valid == job->valid);
		WORLD_CHECK(result.stop == 0 && result.fault == 0 && result.fault_rank == -1);
		WORLD_CHECK(result.sample_hash == 1000 * world + world * (world - 1) / 2);
		WORLD_CHECK(result.waited_most.rank == (world > 1) && result.waited_most.seconds == (world > 1 ? 8 : 3.5));
		WORLD_CHECK(result.waited_least.rank == (world > 6 ? (int)world - 1 : 0));
	}
	ddp_destroy(ddp);
	return 0;
}

static void check_worlds(int slots, size_t bucket_bytes, const int *worlds, int count)
{
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, slots, bucket_bytes, 0);
	for (int i = 0; i < count; i++) {
		world_run(worlds[i], 30, 60, body_canonical, &job, ranks);
		world_assert_ok(worlds[i], ranks);
	}
	free_job(&job);
}

#define WORLDS(...) (const int[]){ __VA_ARGS__ }, sizeof (const int[]){ __VA_ARGS__ } / sizeof(int)

static void test_single(void **state)
{
	for (int slots = 1; slots <= 8; slots++)
		check_worlds(slots, 300000, WORLDS(1));
}

static void test_powers_of_two(void **state)
{
	world_need_several();
	check_worlds(8, 25 << 20, WORLDS(1, 2, 4, 8));
	check_worlds(8, 70000, WORLDS(2, 4, 8));
	check_worlds(16, 500000, WORLDS(4));
}

/* Several pieces a rank, and ranks with unequal numbers of slots. */
static void test_any_world(void **state)
{
	world_need_several();
	check_worlds(8, 300000, WORLDS(3, 5, 6, 7));
	check_worlds(7, 25 << 20, WORLDS(2, 3, 7));
	check_worlds(12, 200000, WORLDS(5));
	check_worlds(27, 1 << 20, WORLDS(4));
	check_worlds(16, 500000, WORLDS(3, 5));
}

/* With zero each rank has the same bits of what it owns, and the same norm, wherever buckets and segments are cut. */
static void test_zero(void **state)
{
	static const struct { int slots; size_t bucket; int world; } cases[] = {
		{ 8, 25 << 20, 1 }, { 8, 25 << 20, 4 }, { 8, 70000, 2 }, { 8, 300000, 3 }, { 16, 500000, 5 }, { 8, 1, 8 },
	};
	struct world_rank ranks[WORLD_MAX];

	world_need_several();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct job job;

		make_job(&job, cases[i].slots, cases[i].bucket, 0);
		job.zero = 1;
		world_run(cases[i].world, 30, 60, body_canonical, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		free_job(&job);
	}
}

static int body_nonfinite(struct comm *comm, void *arg, struct err *err)
{
	const struct job *job = arg;
	const struct tensor *row = &job->table.rows[4];
	struct ddp *ddp = create(comm, job, err);
	struct ddp_result result;
	int first;

	if (!ddp)
		return -1;
	first = ddp_first_slot(ddp);
	ddp_begin(ddp, 0);
	for (int slot = first; slot < first + ddp_slot_count(ddp); slot++) {
		float *grads = ddp_slot_grads(ddp, slot);

		for (int layer = 0; layer < LAYERS; layer++)
			fill_layer(&job->table, grads, 0, slot, layer);
		grads[job->table.rows[1].offset + job->table.rows[1].count] = NAN; /* padding does not count */
		if (slot == job->slots - 1)
			grads[row->offset + row->count - 1] = -INFINITY;
		ddp_slot_end(ddp, slot_loss(0, slot), VALID + slot);
	}
	struct ddp_control control = control_for(comm, 0);
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(!isfinite(result.norm) && result.nonfinite == 4);
	ddp_destroy(ddp);
	return 0;
}

/* Whoever owns it, all ranks know the first tensor whose gradient is not finite. */
static void test_nonfinite(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	world_need_several();
	make_job(&job, 4, 300000, 0);
	for (job.zero = 0; job.zero < 2; job.zero++) {
		world_run(3, 30, 60, body_nonfinite, &job, ranks);
		world_assert_ok(3, ranks);
	}
	free_job(&job);
}

/* The head's part of an embedding is summed by itself, and added at every world size. */
static void test_split_embedding(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_split_job(&job, 8, 60000, 0, true);
	for (int world = 1; world <= 5; world++) {
		job.zero = world % 2 == 0 || world == 5;
		world_run(world, 30, 60, body_canonical, &job, ranks);
		world_assert_ok(world, ranks);
	}
	free_job(&job);
}

static int body_native(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	struct ddp_result result;

	if (!ddp || run_step(ddp, job, 0, control_for(comm, 0), &result, err) < 0)
		return -1;
	for (size_t i = 0; i < job->table.elements; i++)
		WORLD_CHECK(fabsf(ddp_grads(ddp)[i] - job->grads[0][i]) <= 1e-5f * job->magnitude[i]);
	WORLD_CHECK(fabs(result.norm - job->norm[0]) < 1e-6 * job->norm[0]);
	ddp_destroy(ddp);
	return 0;
}

static void test_native_is_close(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 8, 200000, 1);
	for (int size = 1; size <= 4; size++) {
		world_run(size, 30, 60, body_native, &job, ranks);
		world_assert_ok(size, ranks);
	}
	free_job(&job);
}

/* ---- measuring ---- */

/* Each rank ends up with the sum of its own slots, whatever the other ranks have, and still learns losses and flags of all. */
static int body_alone(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp_config config = { .slots = job->slots, .bucket_bytes = job->bucket_bytes, .native = job->native,
		.comm = DDP_COMM_NONE };
	struct ddp *ddp = ddp_create(comm, job->ops, &job->table, &config, err);
	struct ddp_control control = control_for(comm, 0);
	struct ddp_result result;

	control.stop = comm_rank(comm) == 1 ? SIGTERM : 0;
	if (!ddp || run_step(ddp, job, 0, control, &result, err) < 0)
		return -1;
	WORLD_CHECK(result.valid == job->valid && result.stop == SIGTERM && ddp_grads(ddp));
	int first = ddp_first_slot(ddp), end = first + ddp_slot_count(ddp);
	for (size_t i = 0; i < job->table.elements; i++) {
		double sum = 0, magnitude = 0;

		for (int slot = first; slot < end && job->grads[0][i] != 0; slot++) {
			sum += (double)gradient(0, slot, i);
			magnitude += fabs((double)gradient(0, slot, i));
		}
		WORLD_CHECK(fabs((double)ddp_grads(ddp)[i] - sum) <= 1e-6 * magnitude);
	}
	ddp_destroy(ddp);
	return 0;
}

static void test_alone(void **state)
{
	static const struct { int slots, native, world; } cases[] = { { 8, 0, 2 }, { 8, 0, 3 }, { 8, 1, 3 } };
	struct world_rank ranks[WORLD_MAX];

	world_need_several();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct job job;

		make_job(&job, cases[i].slots, 300000, cases[i].native);
		world_run(cases[i].world, 30, 60, body_alone, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		free_job(&job);
	}
}

/* ---- while the backward pass goes on ---- */

/* With the last slot's first two layers ready, their buckets are reduced before the other layers exist. */
static int body_overlap(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	size_t early = 0;

	if (!ddp)
		return -1;
	int first = ddp_first_slot(ddp), last = first + ddp_slot_count(ddp) - 1;
	ddp_begin(ddp, 0);
	for (int slot = first; slot < last; slot++)
		train_slot(ddp, job, 0, slot);
	float *grads = ddp_slot_grads(ddp, last);
	for (int layer = 0; layer < LAYERS; layer++) {
		fill_layer(&job->table, grads, 0, last, layer);
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
	ddp_slot_end(ddp, 0, 1);
	struct ddp_control control = control_for(comm, 0);
	struct ddp_result result;
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	return 0;
}

static void test_overlap(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 4, 100000, 0);
	world_run(2, 30, 60, body_overlap, &job, ranks);
	world_assert_ok(2, ranks);
	free_job(&job);
}

/* 16 slots on 3 ranks are 6, 5 and 5: after one slot rank 2 has finished [11], after two rank 1 [6, 8), after four rank 0
 * [0, 4) and rank 1 [8, 10). All of that travels without anyone's last slot. */
static int body_early(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	struct ddp_control control = control_for(comm, 0);
	struct ddp_result result;

	if (!ddp)
		return -1;
	int first = ddp_first_slot(ddp), last = first + ddp_slot_count(ddp) - 1;
	comm_ticket before = comm_call(comm, "before", NULL, NULL);
	ddp_begin(ddp, 0);
	for (int slot = first; slot < last; slot++)
		train_slot(ddp, job, 0, slot);
	comm_ticket after = comm_call(comm, "after", NULL, NULL);
	WORLD_CHECK(after - before == 1 + 3 * (comm_ticket)ddp_buckets(ddp));
	/* Nobody begins the last slot before all have what was sent until now. */
	char all[3] = "";
	if (comm_wait(comm, comm_allgather(comm, "arrived", "x", all, 1), err) < 0)
		return -1;
	train_slot(ddp, job, 0, last);
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(memcmp(ddp_grads(ddp), job->grads[0], job->table.elements * sizeof(float)) == 0);
	ddp_destroy(ddp);
	return 0;
}

static void test_early_pieces(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 16, 500000, 0);
	world_run(3, 30, 60, body_early, &job, ranks);
	world_assert_ok(3, ranks);
	free_job(&job);
}

/* Where a rank has one piece it sends the bytes of a ring; 8 slots on 3 ranks are 3, 3, 2 in 2, 2 and 1 pieces, and half of
 * a ring's bytes are pieces. */
static int body_cost(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	int world = comm_size(comm);
	struct ddp *ddp = create(comm, job, err);

	if (!ddp)
		return -1;
	struct ddp_cost cost = ddp_cost(ddp);
	double arena = (double)(job->table.elements * sizeof(float)), ring = 2.0 * (world - 1) / world * arena;
	bool uneven = world == 3;

	WORLD_CHECK(cost.most == (uneven ? 3 : 8 / world) && cost.least == (uneven ? 2 : 8 / world));
	WORLD_CHECK(fabs(cost.uneven - (uneven ? 0.125 : 0)) < 1e-12);
	WORLD_CHECK(fabs((double)cost.ring - ring) < 0.01 * ring);
	WORLD_CHECK(uneven && !job->native ? fabs((double)cost.sent - 1.5 * ring) < 0.01 * ring : cost.sent == cost.ring);
	ddp_destroy(ddp);
	return 0;
}

static void test_cost(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];

	for (int native = 0; native <= 1; native++) {
		struct job job;

		make_job(&job, 8, 1 << 20, native);
		for (int world = 2; world <= 4; world++) {
			world_run(world, 30, 60, body_cost, &job, ranks);
			world_assert_ok(world, ranks);
		}
		free_job(&job);
	}
}

/* ---- flags, faults, and ranks that differ ---- */

/* Rank 1 can't read its data and skips its slots: all learn it, nobody waits. */
static int body_fault(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	struct ddp_control control = control_for(comm, 5);
	struct ddp_result result;

	if (!ddp)
		return -1;
	ddp_begin(ddp, 5);
	if (comm_rank(comm) == 1) {
		control.fault = EXIT_DATA;
		control.stop = 1;
	} else {
		for (int slot = 0; slot < ddp_slot_count(ddp); slot++)
			train_slot(ddp, job, 5, ddp_first_slot(ddp) + slot);
	}
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(result.fault == EXIT_DATA && result.fault_rank == 1 && result.stop == 1);
	ddp_destroy(ddp);
	return 0;
}

static void test_fault(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 7, 300000, 0);
	world_run(3, 30, 60, body_fault, &job, ranks);
	world_assert_ok(3, ranks);
	free_job(&job);
}

enum oddity { ODD_STEP, ODD_SLOTS, ODD_TABLE, DEATH };

struct odd_job {
	struct job job;
	enum oddity oddity;
};

static int body_odd(struct comm *comm, void *arg, struct err *err)
{
	struct odd_job *odd = arg;
	struct ddp_control control = control_for(comm, 9);
	struct ddp_result result;
	int me = comm_rank(comm);

	if (odd->oddity == ODD_SLOTS && me == 1)
		odd->job.slots = 16;
	if (odd->oddity == ODD_TABLE && me == 1)
		odd->job.table.rows[2].name[0] = 'F';
	if (odd->oddity == ODD_STEP && me == 1)
		control.step = 10;
	struct ddp *ddp = create(comm, &odd->job, err);
	if (!ddp)
		return -1;
	if (odd->oddity == DEATH && me == 1)
		raise(SIGKILL);
	int rc = run_step(ddp, &odd->job, 9, control, &result, err);
	ddp_destroy(ddp);
	return rc;
}

static void check_odd(enum oddity oddity, enum exit_status status, const char *const *words)
{
	struct world_rank ranks[WORLD_MAX];
	struct odd_job odd = { .oddity = oddity };

	make_job(&odd.job, 8, 300000, 0);
	world_run(3, 30, 60, body_odd, &odd, ranks);
	for (int i = 0; i < 3; i++) {
		if (oddity == DEATH && i == 1)
			continue;
		print_message("# rank %d: %s\n", i, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, status);
		for (const char *const *word = words; *word; word++)
			if (!strstr(ranks[i].err.text, *word))
				fail_msg("\"%s\" is not in: %s", *word, ranks[i].err.text);
	}
	free_job(&odd.job);
}

static void test_oddities(void **state)
{
	world_need_several();
	check_odd(ODD_STEP, EXIT_FAULT, (const char *[]){ "rank 1 at step 10", "rank 0 is at step 9", NULL });
	check_odd(ODD_SLOTS, EXIT_USAGE, (const char *[]){ "--slots is 8 on rank 0 and 16 on rank 1", NULL });
	check_odd(ODD_TABLE, EXIT_USAGE, (const char *[]){ "hash of the tensors", "rank 1", NULL });
	check_odd(DEATH, EXIT_LOST, (const char *[]){ "rank 1 on here", NULL });
}

/* What the ranks tell of their weights or their samples, and who is named for it. */
struct hash_case {
	int world;
	uint64_t hashes[8];
	const char *said;
};

static const struct hash_case drift_cases[] = {
	{ 3, { 0, 0, 0 }, "" },
	{ 3, { 5, 5, 5 }, "" },
	{ 3, { 5, 6, 5 }, "rank 1 on here" },
	{ 3, { 6, 5, 5 }, "rank 0 on here" },
	{ 5, { 5, 7, 5, 6, 5 }, "rank 1 on here, rank 3 on here" },
	{ 2, { 5, 6 }, "rank 1 on here (or the others: no more than half of the ranks agree)" },
	{ 4, { 6, 5, 7, 5 }, "rank 0 on here, rank 2 on here (or the others: no more than half of the ranks agree)" },
	{ 8, { 1, 2, 3, 4, 5, 6, 7, 8 }, "rank 1 on here, rank 2 on here, rank 3 on here, rank 4 on here and 3 more (or the others: "
		"no more than half of the ranks agree)" },
};

struct hash_job {
	struct job job;
	const struct hash_case *told;
};

static int body_drift(struct comm *comm, void *arg, struct err *err)
{
	struct hash_job *drift = arg;
	struct ddp_control control = control_for(comm, 9);
	struct ddp_result result;
	int me = comm_rank(comm);

	control.weights_hash = drift->told->hashes[me];
	struct ddp *ddp = create(comm, &drift->job, err);
	if (!ddp || run_step(ddp, &drift->job, 9, control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	if (strcmp(result.drifted, drift->told->said) != 0)
		return err_set(err, "said '%s', not '%s'", result.drifted, drift->told->said);
	WORLD_CHECK(!result.drift_here || result.drifted[0]);
	WORLD_CHECK(drift->told->world != 3 || !result.drifted[0] || result.drift_here == (result.drifted[5] == '0' + me));
	return 0;
}

static const struct hash_case sample_cases[] = {
	{ 3, { 5, 6, 7 }, "" },
	{ 3, { 0, 0, 7 }, "" }, /* ranks without a sample in the last step of an epoch */
	{ 4, { 9, 5, 7, 5 }, "rank 1 on here, rank 3 on here" },
	{ 5, { 9, 5, 9, 0, 5 }, "rank 0 on here, rank 1 on here, rank 2 on here, rank 4 on here" },
	{ 3, { 5, 5, 5 }, "rank 0 on here, rank 1 on here, rank 2 on here (all ranks)" },
	{ 8, { 5, 5, 5, 5, 5, 5, 5, 6 }, "rank 0 on here, rank 1 on here, rank 2 on here, rank 3 on here and 3 more" },
};

static int body_samples(struct comm *comm, void *arg, struct err *err)
{
	struct hash_job *samples = arg;
	struct ddp_control control = control_for(comm, 9);
	struct ddp_result result;

	control.sample_hash = samples->told->hashes[comm_rank(comm)];
	struct ddp *ddp = create(comm, &samples->job, err);
	if (!ddp || run_step(ddp, &samples->job, 9, control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	if (strcmp(result.same_samples, samples->told->said) != 0)
		return err_set(err, "said '%s', not '%s'", result.same_samples, samples->told->said);
	return 0;
}

static void run_hashes(world_body *body, const struct hash_case *cases, size_t count)
{
	struct world_rank ranks[WORLD_MAX];

	world_need_several();
	for (size_t i = 0; i < count; i++) {
		struct hash_job hashes = { .told = &cases[i] };

		make_job(&hashes.job, 8, 300000, 0);
		world_run(cases[i].world, 30, 60, body, &hashes, ranks);
		world_assert_ok(cases[i].world, ranks);
		free_job(&hashes.job);
	}
}

static void test_drift(void **state)
{
	run_hashes(body_drift, drift_cases, sizeof drift_cases / sizeof drift_cases[0]);
}

static void test_same_samples(void **state)
{
	run_hashes(body_samples, sample_cases, sizeof sample_cases / sizeof sample_cases[0]);
}

/* The step is given up with buckets in flight: the gradients go away only after them, and the peers are told. */
static int body_given_up(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	struct ddp_control control = control_for(comm, 0);
	struct ddp_result result;

	if (comm_rank(comm) == 1) {
		if (!ddp)
			return -1;
		ddp_begin(ddp, 0);
		train_slot(ddp, job, 0, ddp_first_slot(ddp));
		ddp_destroy(ddp);
		return 0;
	}
	/* On a busy machine rank 1 is gone before the others are through with the comparison of the ranks. */
	int rc = ddp ? run_step(ddp, job, 0, control, &result, err) : -1;
	ddp_destroy(ddp);
	WORLD_CHECK(rc < 0 && err->status == EXIT_LOST);
	WORLD_CHECK(strstr(err->text, "rank 1 on here") && strstr(err->text, "the step was given up"));
	return 0;
}

static void test_given_up(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 3, 100000, 0);
	world_run(3, 30, 60, body_given_up, &job, ranks);
	world_assert_ok(3, ranks);
	free_job(&job);
}

static int body_too_many(struct comm *comm, void *arg, struct err *err)
{
	struct ddp *ddp = create(comm, arg, err);

	WORLD_CHECK(!ddp);
	WORLD_CHECK(err->status == EXIT_USAGE);
	WORLD_CHECK(strstr(err->text, "at most 3 ranks") && strstr(err->text, "--slots 4"));
	return 0;
}

static void test_too_many_ranks(void **state)
{
	world_need_several();
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 3, 300000, 0);
	world_run(4, 30, 60, body_too_many, &job, ranks);
	world_assert_ok(4, ranks);
	free_job(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_single),
		cmocka_unit_test(test_powers_of_two),
		cmocka_unit_test(test_any_world),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_nonfinite),
		cmocka_unit_test(test_split_embedding),
		cmocka_unit_test(test_native_is_close),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_early_pieces),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_oddities),
		cmocka_unit_test(test_drift),
		cmocka_unit_test(test_same_samples),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_too_many_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
