/* SPDX-License-Identifier: Apache-2.0 */
/* Weights on their way to all ranks with --zero 1: they come layer by layer and while other things
 * go on, what is no parameter is left alone, and a rank that dies on the way ends the step of the
 * others. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_table.h"
#include "trainer/ddp/ddp_private.h"

#define STEPS 3

struct job {
	struct tensor_table table;
	struct ops *ops;
	size_t bucket_bytes;
};

static void make_job(struct job *job, size_t bucket_bytes)
{
	struct err err;

	*job = (struct job) { .bucket_bytes = bucket_bytes, .ops = ops_cpu_create(true, &err) };
	assert_non_null(job->ops);
	make_table(&job->table);
	/* Statistics between parameters, beside each other, and at the end. */
	job->table.rows[2].role = job->table.rows[3].role = job->table.rows[5].role = TENSOR_STATISTIC;
}

static void free_job(struct job *job)
{
	job->ops->destroy(job->ops);
	tensor_table_clear(&job->table);
}

static struct ddp *create(struct comm *comm, const struct job *job, struct err *err)
{
	const struct ddp_config config = { .slots = 8, .bucket_bytes = job->bucket_bytes, .zero = 1 };

	return ddp_create(comm, job->ops, &job->table, &config, err);
}

static float weight(uint64_t step, size_t at)
{
	return (float)(step * 1000003 + at % 997 + 1);
}

static float statistic(int rank, uint64_t step)
{
	return -(float)(step * 100 + (uint64_t)rank + 1);
}

/* What the rank has of the parameters; and of the rest something of its own. */
static void fill(const struct ddp *ddp, const struct job *job, float *arena, int rank,
	uint64_t step, bool parameters)
{
	size_t count;
	const struct zero_shard *own = ddp_own(ddp, &count);

	for (int r = 0; r < job->table.count; r++) {
		const struct tensor *row = &job->table.rows[r];

		for (size_t i = row->offset; row->role != TENSOR_PARAMETER && i < row->offset + row->count;
			 i++)
			arena[i] = statistic(rank, step);
		for (size_t k = 0; parameters && row->role == TENSOR_PARAMETER && k < count; k++)
			for (size_t i = row->offset; i < row->offset + row->count; i++)
				if (i >= own[k].first && i < own[k].end)
					arena[i] = weight(step, i);
	}
}

/* Whether the parameters of layers from `layer` on are those of the step. */
static bool is_here(const struct job *job, const float *arena, uint64_t step, int layer)
{
	for (int r = 0; r < job->table.count; r++) {
		const struct tensor *row = &job->table.rows[r];

		for (size_t i = row->offset;
			 row->layer >= layer && row->role == TENSOR_PARAMETER && i < row->offset + row->count;
			 i++)
			if (arena[i] != weight(step, i))
				return false;
	}
	return true;
}

static bool keeps_own(const struct job *job, const float *arena, int rank, uint64_t step)
{
	for (int r = 0; r < job->table.count; r++)
		for (size_t i = job->table.rows[r].offset;
			 i < job->table.rows[r].offset + job->table.rows[r].count; i++)
			if (job->table.rows[r].role != TENSOR_PARAMETER && arena[i] != statistic(rank, step))
				return false;
	return true;
}

static int body_layers(struct comm *comm, void *arg, struct err *err)
{
	const struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	float *arena = calloc(job->table.elements, sizeof *arena);
	double exposed = 0;

	WORLD_CHECK(arena);
	if (!ddp)
		return -1;
	for (uint64_t step = 1; step <= STEPS; step++) {
		ddp_begin(ddp, step);
		fill(ddp, job, arena, comm_rank(comm), step, true);
		ddp_allgather_weights(ddp, arena);
		fill(ddp, job, arena, comm_rank(comm), step + 1,
			false); /* as model_settle does meanwhile */
		for (int layer = LAYERS - 1; layer >= 0 && step < STEPS; layer--) {
			ddp_wait_weights(ddp, layer);
			ddp_wait_weights(ddp, LAYERS - 1);
			WORLD_CHECK(is_here(job, arena, step, layer));
		}
		if (ddp_whole(ddp, &exposed, err) < 0)
			return -1;
		WORLD_CHECK(is_here(job, arena, step, 0));
		WORLD_CHECK(keeps_own(job, arena, comm_rank(comm), step + 1));
		WORLD_CHECK(exposed >= 0 && (step == STEPS || exposed == 0));
	}
	ddp_destroy(ddp);
	free(arena);
	return 0;
}

static void layers_come_in_the_order_of_a_forward_pass(void **state)
{
	static const struct {
		int world;
		size_t bucket;
	} cases[] = { { 1, 300000 }, { 2, 70000 }, { 3, 300000 }, { 5, 25 << 20 } };
	struct world_rank ranks[WORLD_MAX];

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct job job;

		make_job(&job, cases[i].bucket);
		world_run(cases[i].world, 30, body_layers, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		free_job(&job);
	}
}

/* Until all ranks have met here. */
static int meet(struct comm *comm, struct err *err)
{
	char all[WORLD_MAX];

	return comm_wait(comm, comm_allgather(comm, "meeting", "x", all, 1), err);
}

/* On the communicator's thread: the second rank's weights do not leave before the first rank has
 * gone on. */
static int hold(void *arg, struct err *err)
{
	char byte;

	(void)err;
	return read(*(int *)arg, &byte, 1) == 1 ? 0 : -1;
}

struct held_job {
	struct job job;
	int pipe[2];
};

/* Nobody waits for weights but at a gate, and at the first one only for what it needs. */
static int body_held(struct comm *comm, void *arg, struct err *err)
{
	struct held_job *held = arg;
	const struct job *job = &held->job;
	struct ddp *ddp = create(comm, job, err);
	float *arena = calloc(job->table.elements, sizeof *arena);
	bool first = comm_rank(comm) == 0;

	WORLD_CHECK(arena);
	if (!ddp || meet(comm, err) < 0)
		return -1;
	ddp_begin(ddp, 1);
	fill(ddp, job, arena, comm_rank(comm), 1, true);
	if (!first)
		comm_call(comm, "hold", hold, &held->pipe[0]);
	ddp_allgather_weights(ddp, arena);
	WORLD_CHECK(ddp->whole < ddp->last_allgather && ddp->waited == 0);
	WORLD_CHECK(!first || write(held->pipe[1], "x", 1) == 1);
	ddp_wait_weights(ddp, LAYERS - 2); /* the layer after it is no parameter here */
	WORLD_CHECK(ddp->whole < ddp->last_allgather && ddp->waited > 0);
	WORLD_CHECK(is_here(job, arena, 1, LAYERS - 2));
	ddp_wait_weights(ddp, 0);
	WORLD_CHECK(ddp->whole == ddp->last_allgather && is_here(job, arena, 1, 0));
	ddp_destroy(ddp);
	free(arena);
	return 0;
}

static void nobody_waits_but_at_a_gate(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct held_job held;

	make_job(&held.job, 70000);
	assert_int_equal(pipe(held.pipe), 0);
	world_run(2, 30, body_held, &held, ranks);
	world_assert_ok(2, ranks);
	close(held.pipe[0]);
	close(held.pipe[1]);
	free_job(&held.job);
}

/* One rank dies when some weights have come; the gates of the others open, and the step ends with
 * the reason. */
static int body_death(struct comm *comm, void *arg, struct err *err)
{
	const struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	float *arena = calloc(job->table.elements, sizeof *arena);
	struct ddp_result result;
	double exposed = 0;

	WORLD_CHECK(arena);
	if (!ddp || meet(comm, err) < 0)
		return -1;
	ddp_begin(ddp, 1);
	fill(ddp, job, arena, comm_rank(comm), 1, true);
	ddp_allgather_weights(ddp, arena);
	ddp_begin(ddp, 2);
	if (comm_rank(comm) == 1) {
		ddp_wait_weights(ddp, LAYERS - 2);
		raise(SIGKILL);
	}
	for (int layer = LAYERS - 1; layer >= 0; layer--)
		ddp_wait_weights(ddp, layer);
	for (int slot = 0; slot < ddp_slot_count(ddp); slot++)
		ddp_slot_end(ddp, 1);
	const struct ddp_control control = { .step = 2 };
	int rc = ddp_finish(ddp, &control, &result, err);
	struct err again = { 0 };
	WORLD_CHECK(
		rc == -1 && (ddp->whole == ddp->last_allgather || ddp_whole(ddp, &exposed, &again) == -1));
	ddp_destroy(ddp);
	free(arena);
	return rc;
}

static void a_death_on_the_way_ends_the_step(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 70000);
	world_run(3, 30, body_death, &job, ranks);
	assert_int_equal(ranks[1].signal, SIGKILL);
	for (int rank = 0; rank < 3; rank += 2) {
		print_message("# rank %d: %s\n", rank, ranks[rank].err.text);
		assert_int_equal(ranks[rank].signal, 0);
		assert_int_equal(ranks[rank].rc, -1);
		assert_int_equal(ranks[rank].err.status, EXIT_LOST);
		assert_non_null(strstr(ranks[rank].err.text, "rank 1 on here"));
	}
	free_job(&job);
}

/* A rank can't go on before it has needed a weight: all learn it, and take their leave of a
 * communicator that is whole. Were it aborted by the first that is through, others would still be
 * in the exchange that tells them. */
static int body_fault(struct comm *comm, void *arg, struct err *err)
{
	const struct job *job = arg;
	struct ddp *ddp = create(comm, job, err);
	float *arena = calloc(job->table.elements, sizeof *arena);
	const struct ddp_control control = { .step = 2, .fault = comm_rank(comm) == 1 ? EXIT_DATA : 0 };
	struct ddp_result result;

	WORLD_CHECK(arena);
	if (!ddp)
		return -1;
	ddp_begin(ddp, 1);
	fill(ddp, job, arena, comm_rank(comm), 1, true);
	ddp_allgather_weights(ddp, arena);
	ddp_begin(ddp, 2);
	for (int layer = LAYERS - 1; layer >= 0 && comm_rank(comm) == 0; layer--)
		ddp_wait_weights(ddp, layer);
	for (int slot = 0; slot < ddp_slot_count(ddp); slot++)
		ddp_slot_end(ddp, 1);
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(result.fault == EXIT_DATA && result.fault_rank == 1);
	WORLD_CHECK(is_here(job, arena, 1, 0));
	ddp_destroy(ddp);
	free(arena);
	return meet(comm, err);
}

static void a_rank_that_cant_go_on_leaves_the_communicator_whole(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct job job;

	make_job(&job, 70000);
	world_run(3, 30, body_fault, &job, ranks);
	world_assert_ok(3, ranks);
	free_job(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_come_in_the_order_of_a_forward_pass),
		cmocka_unit_test(nobody_waits_but_at_a_gate),
		cmocka_unit_test(a_death_on_the_way_ends_the_step),
		cmocka_unit_test(a_rank_that_cant_go_on_leaves_the_communicator_whole),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
