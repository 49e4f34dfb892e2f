/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/ddp/ddp_dry_run.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/auto.h"

#define DEADLINE 60.0 /* seconds; nothing is waited for */

/* Operations that only count. Both the training's thread and the communicator's add. */
static atomic_ullong launches;

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	(void)ops, (void)out, (void)a, (void)b;
	launches += count > 0;
}

static void tree_reduce(struct ops *ops, float *out, float *const *pieces, const int *additions,
	int count, size_t elements)
{
	(void)ops, (void)out, (void)pieces, (void)additions, (void)count;
	launches += elements > 0;
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	(void)ops, (void)sums, (void)x, (void)count;
}

static int step(struct comm *comm, struct ddp *ddp, int layers, float *weights, struct err *err)
{
	const struct ddp_control control = { .step = 1 };
	struct ddp_result result;
	double exposed;

	ddp_begin(ddp, 1);
	for (int slot = 0; slot < ddp_slot_count(ddp); slot++) {
		for (int layer = 0; layer < layers; layer++)
			ddp_ready(ddp, layer);
		ddp_slot_end(ddp, 1);
	}
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	ddp_allgather_weights(ddp, weights);
	return ddp_whole(ddp, &exposed, err) < 0 ? -1 : comm_check(comm, err);
}

static void keep_most(struct ddp_dry_cost *cost, const struct comm_sent_count *count,
	const struct ddp *ddp)
{
	const struct comm_sent *inside = &count->inside, *outside = &count->outside;

	if (inside->messages > cost->inside.messages)
		cost->inside.messages = inside->messages;
	if (inside->bytes > cost->inside.bytes)
		cost->inside.bytes = inside->bytes;
	if (outside->messages > cost->outside.messages)
		cost->outside.messages = outside->messages;
	if (outside->bytes > cost->outside.bytes)
		cost->outside.bytes = outside->bytes;
	if (launches > cost->launches)
		cost->launches = launches;
	if (ddp_memory(ddp) > cost->memory)
		cost->memory = ddp_memory(ddp);
	cost->buckets = ddp_buckets(ddp);
}

struct asked {
	const struct ddp_dry_run *world;
	int *node_of; /* [world] where each rank is */
	int *told;    /* [world] the same, as the engine hears it */
	struct ops *ops;
	float *weights; /* that nobody reads */
};

static int run_over(const struct asked *asked, struct comm *comm, struct ddp_dry_cost *cost,
	struct err *err)
{
	const struct ddp_dry_run *world = asked->world;
	struct comm_sent_count *count = comm_dry_run_count(comm);
	struct ddp_config config = world->config;

	config.node = asked->told[comm_rank(comm)];
	config.nodes = asked->told;
	struct ddp *ddp = ddp_create(comm, asked->ops, world->table, &config, err);
	if (!ddp)
		return -1;
	launches = 0;
	count->node_of = asked->node_of;
	int rc = step(comm, ddp, tensor_table_layers(world->table), asked->weights, err);
	keep_most(cost, count, ddp);
	ddp_destroy(ddp);
	return rc;
}

/* Adds what the rank sends to other nodes to *node_bytes. */
static int run_rank(const struct asked *asked, int rank, struct ddp_dry_cost *cost,
	uint64_t *node_bytes, struct err *err)
{
	const struct ident ident = { .rank = rank,
		.world_size = asked->world->nodes * asked->world->ranks,
		.node = "here" };
	struct comm *comm = comm_open_over(&comm_dry_run, &ident, NULL, DEADLINE, err);

	if (!comm)
		return -1;
	int rc = run_over(asked, comm, cost, err);
	*node_bytes += comm_dry_run_count(comm)->outside.bytes;
	comm_close(comm);
	return rc;
}

static int run_nodes(const struct asked *asked, struct ddp_dry_cost *cost, struct err *err)
{
	const int nodes = asked->world->nodes, ranks = asked->world->ranks;

	for (int node = 0; node<nodes; node += nodes> 1 ? nodes - 1 : 1) {
		uint64_t bytes = 0;

		for (int rank = node * ranks; rank < (node + 1) * ranks; rank++)
			if (run_rank(asked, rank, cost, &bytes, err) < 0)
				return -1;
		if (bytes > cost->node_bytes)
			cost->node_bytes = bytes;
	}
	return 0;
}

int ddp_dry_run(const struct ddp_dry_run *world, struct ddp_dry_cost *cost, struct err *err)
{
	const int count = world->nodes * world->ranks;
	AUTO_FREE int *node_of = calloc((size_t)count, sizeof *node_of),
				  *told = calloc((size_t)count, sizeof *told);
	AUTO_FREE float *weights = calloc(world->table->elements, sizeof *weights);

	*cost = (struct ddp_dry_cost) { 0 };
	if (!node_of || !told || !weights)
		return err_set(err, "ddp: out of memory");
	for (int rank = 0; rank < count; rank++) {
		node_of[rank] = rank / world->ranks;
		told[rank] = world->flat ? rank : node_of[rank];
	}
	struct ops *ops = ops_cpu_create(true, err);
	if (!ops)
		return -1;
	ops->add = add;
	ops->tree_reduce = tree_reduce;
	ops->square_sums = square_sums;
	const struct asked asked = { world, node_of, told, ops, weights };
	int rc = run_nodes(&asked, cost, err);
	ops->destroy(ops);
	return rc;
}

double ddp_dry_seconds(const struct ddp_dry_cost *cost, const struct ddp_links *links)
{
	return (double)(cost->inside.messages + cost->outside.messages) * links->latency
		+ (double)cost->node_bytes / links->outside + (double)cost->inside.bytes / links->inside;
}
