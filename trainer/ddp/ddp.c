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
#include "trainer/comm/status_exchange.h"
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

/* Bytes that a rank sends for one bucket, where it has `pieces` and its node `of_node` pieces. On
 * its node it sends its pieces of what it does not carry, and later the sums of what it does;
 * between nodes, those of its node of what it carries and does not own, and its own sums (with
 * zero the sums are weights). A split embedding's sums go only once. */
static size_t bucket_traffic(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank,
	int pieces, int of_node)
{
	size_t own, carried = bucket->count, neighbours = 0, nodes = (size_t)ddp->nodes.count - 1;
	bool sums = !ddp->cuts || ddp_bucket_is_of_rows(ddp->table, bucket);

	ddp_owned(ddp, bucket, rank, &own);
	if (ddp_has_nodes(ddp)) {
		neighbours = (size_t)ddp_nodes_size(&ddp->nodes, ddp->nodes.node_of[rank]) - 1;
		ddp_carried(ddp, bucket, rank, &carried);
	}
	size_t elements =
		(bucket->count - carried) * (size_t)pieces + (carried - own) * (size_t)of_node;
	if (sums)
		elements += own * nodes + carried * neighbours;
	return elements * (ddp->bf16 ? 2 : sizeof(float));
}

/* Bytes that a rank sends in a step. */
static size_t traffic(const struct ddp *ddp, int rank, int pieces, int of_node)
{
	size_t bytes = 0;

	for (int i = 0; i < ddp->bucket_count; i++)
		bytes += bucket_traffic(ddp, &ddp->buckets[i], rank, pieces, of_node);
	return bytes;
}

/* Number of pieces of the node that a rank is on. */
static int pieces_of_node(const struct ddp *ddp, int rank)
{
	const struct ddp_plan *plan = &ddp->plan;
	const struct ddp_nodes *nodes = &ddp->nodes;
	struct tree_node ignored[TREE_PIECES_MAX];
	int node = nodes->node_of[rank];

	if (!ddp_has_nodes(ddp))
		return plan->piece_start[rank + 1] - plan->piece_start[rank];
	return tree_group_pieces(plan->slots, plan->world, nodes->begin[node], nodes->begin[node + 1],
		ignored);
}

static struct ddp_cost cost_of(const struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_cost cost = { 0 };

	tree_rank_slots(plan->slots, plan->world, 0, &cost.most);
	tree_rank_slots(plan->slots, plan->world, plan->world - 1, &cost.least);
	cost.uneven = (double)cost.most * plan->world / plan->slots - 1;
	for (int rank = 0; rank < plan->world; rank++) {
		size_t sent = traffic(ddp, rank, plan->piece_start[rank + 1] - plan->piece_start[rank],
			pieces_of_node(ddp, rank));
		size_t ring = traffic(ddp, rank, 1, 1);

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
	AGREE_COUNT,
	TELL_NODE = AGREE_COUNT, /* not the same on all ranks */
	TELL_COUNT
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

/* A hash of the table's contents, member by member so that padding between them does not count. -1
 * when out of memory: the others would take any value for another layout. */
static int layout_hash(const struct tensor_table *table, uint64_t *hash)
{
	struct hasher *hasher = hasher_create();

	if (!hasher)
		return -1;
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		int64_t numbers[] = { row->dims, row->shape[0], row->shape[1], row->padded[0],
			row->padded[1], row->layer, (int64_t)row->offset, (int64_t)row->count };

		hasher_add(hasher, row->name, strnlen(row->name, sizeof row->name));
		hasher_add(hasher, numbers, sizeof numbers);
	}
	*hash = hasher_value(hasher).low;
	hasher_destroy(hasher);
	return 0;
}

int ddp_agree(struct comm *comm, const struct tensor_table *table, const struct ddp_config *config,
	int *nodes, struct err *err)
{
	const size_t world = (size_t)comm_size(comm);
	uint64_t mine[TELL_COUNT] = {
		[AGREE_SLOTS] = (uint64_t)config->slots,
		[AGREE_BUCKET] = config->bucket_bytes,
		[AGREE_NATIVE] = config->native != 0,
		[AGREE_BF16] = config->bf16 != 0,
		[AGREE_ZERO] = config->zero != 0,
		[AGREE_COMM] = (uint64_t)config->comm,
		[AGREE_ELEMENTS] = tensor_table_gradients(table),
		[AGREE_TENSORS] = (uint64_t)table->count,
		[TELL_NODE] = (uint64_t)config->node,
	};
	AUTO_FREE uint64_t *all = calloc(world, sizeof mine);

	if (!all || layout_hash(table, &mine[AGREE_LAYOUT]) < 0)
		return err_set(err, "ddp: couldn't compare the ranks: out of memory");
	if (comm_wait(comm, comm_allgather(comm, "the comparison of the ranks", mine, all, sizeof mine),
			err)
		< 0)
		return -1;
	for (size_t rank = 0; rank < world; rank++) {
		for (int i = 0; i < AGREE_COUNT; i++)
			if (all[rank * TELL_COUNT + i] != all[i]) {
				err_fail(err, EXIT_USAGE,
					"ddp: couldn't train together: %s is %" PRIu64 " on rank 0 and %" PRIu64
					" on rank %zu; start all ranks with the same options",
					agree_names[i], all[i], all[rank * TELL_COUNT + i], rank);
				return ERR_SHARED;
			}
		nodes[rank] = (int)all[rank * TELL_COUNT + TELL_NODE];
	}
	return 0;
}

/* Plans the way over the nodes. */
static int plan_nodes(struct ddp *ddp, const struct ddp_config *config, struct err *err)
{
	const int world = comm_size(ddp->comm);

	if (config->nodes)
		return ddp_nodes_make(&ddp->nodes, world, config->nodes, err);
	AUTO_FREE int *nodes = calloc((size_t)world, sizeof *nodes);
	if (!nodes)
		return err_set(err, "ddp: couldn't compare the ranks: out of memory");
	return ddp_agree(ddp->comm, ddp->table, config, nodes, err) < 0
		? -1
		: ddp_nodes_make(&ddp->nodes, world, nodes, err);
}

static int prepare_buckets(struct ddp *ddp, struct err *err)
{
	size_t world = (size_t)ddp->plan.world, buckets = (size_t)ddp->bucket_count,
		   others = ddp->zero ? tensor_table_others(ddp->table) : 0;

	ddp->jobs = calloc(buckets, sizeof *ddp->jobs);
	for (size_t i = 0; ddp->jobs && i < buckets; i++)
		ddp->jobs[i] = (struct ddp_job) { .ddp = ddp, .bucket = &ddp->buckets[i] };
	if (ddp->segmented && ddp_stages_prepare(ddp, err) < 0)
		return -1;
	/* Room to send all pieces of this rank or its node to each other rank and to receive all of
	 * theirs, and to send and receive sums; for weights, also for the runs between rows that are no
	 * parameters. */
	size_t pieces = (size_t)ddp->plan.piece_start[world],
		   own = (size_t)pieces_of_node(ddp, ddp->plan.rank);
	ddp->transfers = calloc(pieces + world * (own + 2 * (1 + others) + 1), sizeof *ddp->transfers);
	return ddp->jobs && ddp->transfers
		? 0
		: err_set(err, "ddp: couldn't prepare the buckets: out of memory");
}

static int prepare(struct ddp *ddp, const struct ddp_config *config, struct err *err)
{
	if (plan_nodes(ddp, config, err) < 0
		|| ddp_plan_make(&ddp->plan, config->slots, comm_size(ddp->comm),
			   ddp->nodes.place[comm_rank(ddp->comm)], ddp->native || ddp->alone, err)
			< 0)
		return -1;
	ddp->segmented = ddp->plan.world > 1 && !ddp->native && !ddp->alone;
	if (cut_buckets(ddp, config->bucket_bytes, err) < 0)
		return -1;
	if (ddp->zero && ddp_zero_prepare(ddp, err) < 0)
		return -1;
	ddp->cost = cost_of(ddp);
	if (alloc_arenas(ddp, err) < 0 || prepare_buckets(ddp, err) < 0)
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

const int *ddp_order(const struct ddp *ddp)
{
	return ddp->nodes.rank;
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
	ddp_stages_clear(ddp);
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
	free(ddp->transfers);
	free(ddp->block_start);
	free(ddp->messages);
	ddp_plan_clear(&ddp->plan);
	ddp_nodes_clear(&ddp->nodes);
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
