/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism as it is created: what each rank has to sum and to send, the memory for that,
 * and whether all ranks plan the same. */
#include "trainer/ddp/ddp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/hash.h"
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

/* Bytes that a rank with this number of pieces sends for one bucket. It sends its pieces of the
 * segments that it does not own, and its own segment to all others (with zero that is of weights).
 * A split embedding sends its own segment only once. */
static size_t bucket_traffic(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank,
	int pieces)
{
	size_t others = (size_t)ddp->plan.world - 1, own;

	if (ddp->cuts && !ddp_bucket_is_of_rows(ddp->table, bucket))
		others = 0;
	ddp_segment(bucket, ddp->plan.world, rank, &own);
	return ((bucket->count - own) * (size_t)pieces + own * others)
		* (ddp->bf16 ? 2 : sizeof(float));
}

/* Bytes of the buffers that receive other ranks' pieces. */
static size_t staging_bytes(const struct ddp *ddp)
{
	size_t last = ddp->staging ? (size_t)(ddp->plan.world - 1) * ddp->segment_max : 0;

	return (last + (size_t)ddp->early_pieces * ddp->share) * sizeof(float);
}

/* Bytes that a rank with this number of pieces sends in a step. */
static size_t traffic(const struct ddp *ddp, int rank, int pieces)
{
	size_t bytes = 0;

	for (int i = 0; i < ddp->bucket_count; i++)
		bytes += bucket_traffic(ddp, &ddp->buckets[i], rank, pieces);
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

enum {
	AGREE_SLOTS,
	AGREE_BUCKET,
	AGREE_NATIVE,
	AGREE_BF16,
	AGREE_ZERO,
	AGREE_COMM,
	AGREE_ELEMENTS,
	AGREE_TENSORS,
	AGREE_LAYOUT,
	AGREE_COUNT
};

static const char *const agree_names[AGREE_COUNT] = {
	"--slots",
	"bytes of a bucket",
	"native reduction",
	"--grad-dtype bf16",
	"--zero",
	"--comm",
	"elements of the gradients",
	"number of tensors",
	"hash of the tensors",
};

/* A hash of the table's contents, member by member so that padding between them does not count. */
static uint64_t layout_hash(const struct tensor_table *table)
{
	struct hasher *hasher = hasher_create();

	if (!hasher)
		return 0;
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		int64_t numbers[] = { row->dims, row->shape[0], row->shape[1], row->padded[0],
			row->padded[1], row->layer, (int64_t)row->offset, (int64_t)row->count };

		hasher_add(hasher, row->name, strnlen(row->name, sizeof row->name));
		hasher_add(hasher, numbers, sizeof numbers);
	}
	uint64_t value = hasher_value(hasher).low;
	hasher_destroy(hasher);
	return value;
}

/* Collective: checks that all ranks have the same options and tensors. */
static int agree(struct ddp *ddp, const struct ddp_config *config, struct err *err)
{
	const uint64_t mine[AGREE_COUNT] = {
		[AGREE_SLOTS] = (uint64_t)config->slots,
		[AGREE_BUCKET] = config->bucket_bytes,
		[AGREE_NATIVE] = config->native != 0,
		[AGREE_BF16] = config->bf16 != 0,
		[AGREE_ZERO] = config->zero != 0,
		[AGREE_COMM] = (uint64_t)config->comm,
		[AGREE_ELEMENTS] = tensor_table_gradients(ddp->table),
		[AGREE_TENSORS] = (uint64_t)ddp->table->count,
		[AGREE_LAYOUT] = layout_hash(ddp->table),
	};
	AUTO_FREE uint64_t *all = calloc((size_t)ddp->plan.world, sizeof mine);

	if (!all)
		return err_set(err, "ddp: couldn't compare the ranks: out of memory");
	if (comm_wait(ddp->comm,
			comm_allgather(ddp->comm, "the comparison of the ranks", mine, all, sizeof mine), err)
		< 0)
		return -1;
	for (int rank = 1; rank < ddp->plan.world; rank++)
		for (int i = 0; i < AGREE_COUNT; i++)
			if (all[rank * AGREE_COUNT + i] != all[i])
				return err_fail(err, EXIT_USAGE,
					"ddp: couldn't train together: %s is %" PRIu64 " on rank 0 and %" PRIu64
					" on rank %d; start all ranks with the same options",
					agree_names[i], all[i], all[rank * AGREE_COUNT + i], rank);
	return 0;
}

/* Where a bucket's pieces are received, and what its job is. */
static void place_buckets(struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t count;

	for (int i = 0; i < ddp->bucket_count; i++) {
		ddp->jobs[i] = (struct ddp_job) { .ddp = ddp, .bucket = &ddp->buckets[i] };
		ddp_segment(&ddp->buckets[i], plan->world, plan->rank, &count);
		ddp->segment_max = count > ddp->segment_max ? count : ddp->segment_max;
		ddp->share_start[i] = ddp->share;
		ddp->share += count;
	}
	for (int rank = 0; rank < plan->world; rank++)
		for (int number = plan->piece_start[rank];
			 rank != plan->rank && ddp_plan_is_early(plan, rank, number); number++)
			ddp->early_place[number] = ddp->early_pieces++;
}

static int prepare_buckets(struct ddp *ddp, struct err *err)
{
	size_t world = (size_t)ddp->plan.world, pieces = (size_t)ddp->plan.piece_start[world],
		   buckets = (size_t)ddp->bucket_count;

	ddp->jobs = calloc(buckets, sizeof *ddp->jobs);
	ddp->share_start = calloc(buckets, sizeof *ddp->share_start);
	ddp->piece_at = calloc(pieces, sizeof *ddp->piece_at);
	ddp->additions = calloc(pieces, sizeof *ddp->additions);
	ddp->early_place = calloc(pieces, sizeof *ddp->early_place);
	/* Room to send to and receive from each other rank, for pieces and for sums; for weights, also
	 * for the runs between rows that are no parameters. */
	ddp->transfers = calloc(2 * world * (2 + (ddp->zero ? tensor_table_others(ddp->table) : 0)),
		sizeof *ddp->transfers);
	if (!ddp->jobs || !ddp->share_start || !ddp->piece_at || !ddp->additions || !ddp->early_place
		|| !ddp->transfers)
		return err_set(err, "ddp: couldn't prepare the buckets: out of memory");
	tree_additions(ddp->plan.slots, ddp->plan.world, ddp->additions, (int)pieces);
	place_buckets(ddp);
	return 0;
}

/* Allocates the memory that receives other ranks' pieces. */
static int alloc_staging(struct ddp *ddp, struct err *err)
{
	size_t last = (size_t)(ddp->plan.world - 1) * ddp->segment_max * sizeof(float),
		   early = (size_t)ddp->early_pieces * ddp->share * sizeof(float);

	if (!ddp->segmented)
		return 0;
	ddp->staging = ddp->device->alloc(ddp->device, last);
	if (!ddp->staging)
		return device_check(ddp->device, err) < 0
			? -1
			: err_set(err,
				"ddp: couldn't allocate %.1f MB to receive pieces of other ranks: out of memory",
				(double)last * 1e-6);
	ddp->early = early ? ddp->device->alloc(ddp->device, early) : NULL;
	if (early && !ddp->early)
		return device_check(ddp->device, err) < 0
			? -1
			: err_set(err,
				"ddp: couldn't allocate %.1f MB to receive early pieces of other ranks: out of "
				"memory; a number of ranks that divides --slots needs none",
				(double)early * 1e-6);
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
	ddp->cost = cost_of(ddp);
	if (agree(ddp, config, err) < 0 || alloc_arenas(ddp, err) < 0 || prepare_buckets(ddp, err) < 0
		|| alloc_staging(ddp, err) < 0)
		return -1;
	return ddp_control_prepare(ddp, err);
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
		(double)staging_bytes(ddp) * 1e-6);
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
	*ddp = (struct ddp) { .comm = comm,
		.ops = ops,
		.device = ops->device,
		.table = table,
		.native = config->native != 0,
		.bf16 = config->bf16 != 0,
		.zero = config->zero != 0,
		.alone = config->comm == DDP_COMM_NONE,
		.late = config->late != 0 };
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

const float *ddp_grads(const struct ddp *ddp)
{
	return ddp->arenas[0];
}

size_t ddp_memory(const struct ddp *ddp)
{
	return (size_t)ddp->plan.arenas * tensor_table_gradients(ddp->table) * sizeof(float)
		+ staging_bytes(ddp);
}

struct ddp_cost ddp_cost(const struct ddp *ddp)
{
	return ddp->cost;
}

int ddp_buckets(const struct ddp *ddp)
{
	return ddp->bucket_count;
}
