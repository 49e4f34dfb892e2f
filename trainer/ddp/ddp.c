/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one step of data parallelism for the training loop: takes each slot's gradients, starts the
 * reduction of a bucket as soon as it is complete, and waits for the results. */
#include "trainer/ddp/ddp.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/ddp/ddp_private.h"

static int alloc_arenas(struct ddp *ddp, struct err *err)
{
	size_t bytes = tensor_table_gradients(ddp->table) * sizeof(float);

	ddp->arenas = calloc((size_t)ddp->plan.arenas, sizeof *ddp->arenas);
	for (int i = 0; ddp->arenas && i < ddp->plan.arenas; i++) {
		ddp->arenas[i] = ddp->device->alloc(ddp->device, bytes);
		if (!ddp->arenas[i])
			return device_check(ddp->device, err) < 0
				? -1
				: err_set(err,
					"ddp: couldn't allocate %d gradient arenas of %.1f MB: out of memory; fewer "
					"--slots need fewer of them",
					ddp->plan.arenas, (double)bytes * 1e-6);
	}
	return ddp->arenas ? 0 : err_set(err, "ddp: couldn't allocate the gradients: out of memory");
}

/* Bytes that a rank with this number of pieces sends in a step. */
static size_t traffic(const struct ddp *ddp, int rank, int pieces)
{
	size_t bytes = 0;

	for (int i = 0; i < ddp->bucket_count; i++)
		bytes += ddp_bucket_traffic(ddp, &ddp->buckets[i], rank, pieces);
	return bytes;
}

static struct ddp_cost cost_of(const struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_cost cost = { 0 };

	tree_rank_slots(plan->slots, plan->world, 0, &cost.most);
	tree_rank_slots(plan->slots, plan->world, plan->world - 1, &cost.least);
	cost.uneven = (double)cost.most * plan->world / plan->slots - 1;
	for (int rank = 0; rank < plan->world; rank++) {
		size_t sent = traffic(ddp, rank, plan->piece_start[rank + 1] - plan->piece_start[rank]);
		size_t ring = traffic(ddp, rank, 1);

		cost.sent = sent > cost.sent ? sent : cost.sent;
		cost.ring = ring > cost.ring ? ring : cost.ring;
	}
	return cost;
}

/* With segments, these begin at blocks of the norm, so that the rank that sums a block's gradients
 * sums its squares, too. */
static int cut_buckets(struct ddp *ddp, size_t bytes, struct err *err)
{
	ddp->buckets = ddp_buckets_make(ddp->table, bytes, &ddp->bucket_count);
	if (ddp->buckets && !ddp->native)
		ddp->cuts =
			ddp_buckets_align(ddp->table, &ddp->buckets, &ddp->bucket_count, ddp->plan.world);
	if (!ddp->buckets || (!ddp->native && !ddp->cuts))
		return err_set(err, "ddp: couldn't cut the gradients into buckets: out of memory");
	while (ddp->cuts && !ddp_bucket_is_of_rows(ddp->table, &ddp->buckets[ddp->heads]))
		ddp->heads++;
	return 0;
}

static int prepare(struct ddp *ddp, const struct ddp_config *config, struct err *err)
{
	if (ddp_plan_make(&ddp->plan, config->slots, comm_size(ddp->comm), comm_rank(ddp->comm),
			ddp->native || ddp->alone, err)
		< 0)
		return -1;
	ddp->segmented = ddp->plan.world > 1 && !ddp->native && !ddp->alone;
	if (cut_buckets(ddp, config->bucket_bytes, err) < 0)
		return -1;
	if (ddp->zero && ddp_zero_prepare(ddp, err) < 0)
		return -1;
	ddp->jobs = calloc((size_t)ddp->bucket_count, sizeof *ddp->jobs);
	if (!ddp->jobs)
		return err_set(err, "ddp: couldn't prepare the buckets: out of memory");
	ddp->cost = cost_of(ddp);
	if (ddp_agree(ddp, config, err) < 0 || alloc_arenas(ddp, err) < 0)
		return -1;
	return ddp_reduce_prepare(ddp, err) < 0 || ddp_control_prepare(ddp, err) < 0 ? -1 : 0;
}

static void log_memory(const struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;

	if (plan->rank != 0)
		return;
	log_info("ddp: %s reduction of %d slots over %d ranks; rank 0 has %d slot%s in %d piece%s: %d "
			 "gradient arena%s of %.1f MB (%d for the counter of slots) and %.1f MB for pieces of "
			 "others",
		ddp->native ? "native" : "canonical", plan->slots, plan->world, plan->count,
		plan->count == 1 ? "" : "s", plan->pieces, plan->pieces == 1 ? "" : "s", plan->arenas,
		plan->arenas == 1 ? "" : "s",
		(double)(tensor_table_gradients(ddp->table) * sizeof(float)) * 1e-6, plan->arenas - 1,
		(double)ddp_staging_bytes(ddp) * 1e-6);
	if (ddp->native)
		log_warn("ddp: with --reduction native the bits of the result depend on the world size%s",
			ddp->bf16 ? ", and --grad-dtype bf16 rounds the sums on their way" : "");
}

struct ddp *ddp_create(struct comm *comm, struct ops *ops, const struct tensor_table *table,
	const struct ddp_config *config, struct err *err)
{
	struct ddp *ddp = calloc(1, sizeof *ddp);

	if (!ddp) {
		err_set(err, "ddp: couldn't begin: out of memory");
		return NULL;
	}
	ddp->comm = comm;
	ddp->ops = ops;
	ddp->device = ops->device;
	ddp->table = table;
	ddp->native = config->native != 0;
	ddp->bf16 = config->bf16 != 0;
	ddp->zero = config->zero != 0;
	ddp->alone = config->comm == DDP_COMM_NONE;
	ddp->late = config->late != 0;
	if (prepare(ddp, config, err) < 0) {
		ddp_destroy(ddp);
		return NULL;
	}
	log_memory(ddp);
	return ddp;
}

void ddp_destroy(struct ddp *ddp)
{
	if (!ddp)
		return;
	/* When a step is given up half-way, no operation may stay in flight over memory that is
	 * freed. */
	if ((ddp->last && !ddp->settled) || ddp->whole < ddp->last_allgather) {
		struct err ignored;
		comm_abort(ddp->comm, "the step was given up");
		comm_wait(ddp->comm, ddp->last, &ignored);
	}
	for (int i = 0; ddp->arenas && i < ddp->plan.arenas; i++)
		if (ddp->arenas[i])
			ddp->device->release(ddp->device, ddp->arenas[i]);
	if (ddp->staging)
		ddp->device->release(ddp->device, ddp->staging);
	if (ddp->early)
		ddp->device->release(ddp->device, ddp->early);
	if (ddp->figures && device_has_memory(ddp->device))
		ddp->device->release(ddp->device, ddp->figures);
	free(ddp->arenas);
	free(ddp->buckets);
	free(ddp->jobs);
	free(ddp->cuts);
	free(ddp->shards);
	free(ddp->shards_of);
	free(ddp->allgathers);
	free(ddp->runs);
	free(ddp->cursors);
	free(ddp->hashes);
	free(ddp->piece_at);
	free(ddp->additions);
	free(ddp->early_place);
	free(ddp->share_start);
	free(ddp->transfers);
	free(ddp->block_start);
	free(ddp->messages);
	ddp_plan_clear(&ddp->plan);
	free(ddp);
}

int ddp_first_slot(const struct ddp *ddp)
{
	return ddp->plan.first;
}

int ddp_slot_count(const struct ddp *ddp)
{
	return ddp->plan.count;
}

void ddp_begin(struct ddp *ddp, uint64_t step)
{
	comm_place(ddp->comm, step, -1);
	ddp->step = step;
	ddp->ended = 0;
	ddp->travelled = 0;
	ddp->launched = 0;
	ddp->last = 0;
	ddp->settled = false;
	ddp->waited = 0;
}

float *ddp_slot_grads(struct ddp *ddp, int slot)
{
	return ddp->arenas[ddp->plan.arena_of[slot - ddp->plan.first]];
}

double *ddp_slot_loss(struct ddp *ddp, int slot)
{
	return ddp->figures + (slot - ddp->plan.first);
}

/* Buckets become complete only with the last slot's gradients. */
void ddp_ready(void *arg, int layer)
{
	struct ddp *ddp = arg;

	if (ddp->ended != ddp->plan.count - 1)
		return;
	while (ddp->launched < ddp->bucket_count && ddp->buckets[ddp->launched].layer <= layer)
		ddp_launch(ddp);
}

static void launch_rest(struct ddp *ddp)
{
	while (ddp->launched < ddp->bucket_count)
		ddp_launch(ddp);
}

void ddp_slot_end(struct ddp *ddp, int64_t valid)
{
	const struct ddp_plan *plan = &ddp->plan;
	int slot = ddp->ended, from = slot > 0 ? plan->merge_end[slot - 1] : 0;

	ddp->valid[slot] = valid;
	ddp->ended++;
	if (ddp->ended == plan->count) {
		launch_rest(ddp);
		return;
	}
	for (int i = from; i < plan->merge_end[slot]; i++) {
		float *left = ddp->arenas[plan->additions[i].left];
		ddp->ops->add(ddp->ops, left, left, ddp->arenas[plan->additions[i].right],
			tensor_table_gradients(ddp->table));
	}
	if (!ddp->late)
		ddp_early_launch(ddp, ddp->ended);
}

void ddp_join_split(struct ddp *ddp, size_t first, size_t end)
{
	const struct tensor_table *table = ddp->table;
	size_t from = table->split_offset, to = from + table->split_count;

	first = first > from ? first : from;
	end = end < to ? end : to;
	if (first >= end)
		return;
	float *whole = ddp->arenas[0] + first,
		  *head = ddp->arenas[0] + table->elements + (first - from);
	ddp->ops->add(ddp->ops, whole, head, whole, end - first);
}

/* Waits for the reduction where no rank sums by segments, and then adds a split embedding as a
 * whole. */
static int await_sums(struct ddp *ddp, struct ddp_result *result, struct err *err)
{
	double begun = clock_now();
	int rc = comm_wait(ddp->comm, ddp->last, err);

	ddp->settled = true;
	result->exposed += clock_now() - begun;
	if (rc == 0)
		ddp_join_split(ddp, 0, ddp->table->elements);
	return rc;
}

int ddp_finish(struct ddp *ddp, const struct ddp_control *mine, struct ddp_result *result,
	struct err *err)
{
	*result = (struct ddp_result) { .fault_rank = -1, .nonfinite = -1 };
	if (ddp->ended != ddp->plan.count && !mine->fault)
		return err_set(err, "ddp: couldn't finish the step: %d of this rank's %d slots have ended",
			ddp->ended, ddp->plan.count);
	launch_rest(ddp); /* a faulty rank takes part all the same, or the others would wait for it */
	result->exposed = ddp->waited;
	if (!ddp->segmented && await_sums(ddp, result, err) < 0)
		return -1;
	return ddp_control_run(ddp, mine, result, err);
}

const float *ddp_grads(const struct ddp *ddp)
{
	return ddp->arenas[0];
}

size_t ddp_memory(const struct ddp *ddp)
{
	return (size_t)ddp->plan.arenas * tensor_table_gradients(ddp->table) * sizeof(float)
		+ ddp_staging_bytes(ddp);
}

struct ddp_cost ddp_cost(const struct ddp *ddp)
{
	return ddp->cost;
}

int ddp_buckets(const struct ddp *ddp)
{
	return ddp->bucket_count;
}
