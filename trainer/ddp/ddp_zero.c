/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership with --zero 1: each rank has a segment of every bucket, made of whole blocks of the
 * norm, and it alone sums and updates these elements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "trainer/ddp/ddp_private.h"

/* Joins adjacent shards of a rank. */
static void add_shard(struct ddp *ddp, int rank, size_t first, size_t count)
{
	struct zero_shard *last = ddp->shard_count > 0 ? &ddp->shards[ddp->shard_count - 1] : NULL;

	if (count == 0)
		return;
	if (last && last->rank == rank && last->end == first)
		last->end += count;
	else
		ddp->shards[ddp->shard_count++] = (struct zero_shard) { rank, first, first + count };
}

static void list_shards(struct ddp *ddp)
{
	int world = ddp->plan.world;

	for (int rank = 0; rank < world; rank++) {
		ddp->shards_of[rank] = ddp->shard_count;
		for (int i = ddp->heads; i < ddp->bucket_count; i++) {
			size_t count, first = ddp_segment(&ddp->buckets[i], world, rank, &count);

			add_shard(ddp, rank, first, count);
		}
	}
	ddp->shards_of[world] = ddp->shard_count;
}

int ddp_zero_prepare(struct ddp *ddp, struct err *err)
{
	size_t world = (size_t)ddp->plan.world;

	if (ddp->native)
		return err_fail(err, EXIT_USAGE,
			"ddp: couldn't share the optimizer out: --zero 1 goes with --reduction canonical only");
	ddp->shards = calloc((size_t)ddp->bucket_count * world, sizeof *ddp->shards);
	ddp->shards_of = calloc(world + 1, sizeof *ddp->shards_of);
	ddp->allgathers = calloc((size_t)ddp->bucket_count, sizeof *ddp->allgathers);
	if (!ddp->shards || !ddp->shards_of || !ddp->allgathers)
		return err_set(err, "ddp: couldn't share the optimizer out: out of memory");
	list_shards(ddp);
	return 0;
}

const struct zero_shard *ddp_shards(const struct ddp *ddp, size_t *count)
{
	*count = ddp->shard_count;
	return ddp->shards;
}

const struct zero_shard *ddp_own(const struct ddp *ddp, size_t *count)
{
	*count = 0;
	if (!ddp->zero)
		return NULL;
	size_t first = ddp->shards_of[ddp->plan.rank];
	*count = ddp->shards_of[ddp->plan.rank + 1] - first;
	return ddp->shards + first;
}

/* Adds transfers of the parameters among elements [first, end), in the runs between other rows. */
static void add_parameters(struct ddp *ddp, int *count, int peer, float *arena, size_t first,
	size_t end, int receive)
{
	for (int i = 0; i < ddp->table->count; i++) {
		const struct tensor *row = &ddp->table->rows[i];

		if (row->role == TENSOR_PARAMETER || row->offset + row->count <= first
			|| row->offset >= end)
			continue;
		if (row->offset > first)
			ddp_add_transfer(ddp, count, peer, arena + first, row->offset - first, receive);
		first = row->offset + row->count;
	}
	if (first < end)
		ddp_add_transfer(ddp, count, peer, arena + first, end - first, receive);
}

/* Sends every rank's weights of a bucket to all others. Nothing is computed of them, so the next
 * bucket's begin at once. */
static comm_ticket allgather_bucket(struct ddp *ddp, int number, float *arena)
{
	const struct ddp_plan *plan = &ddp->plan;
	const struct ddp_bucket *bucket = &ddp->buckets[number];
	size_t own_count, peer_count, own = ddp_segment(bucket, plan->world, plan->rank, &own_count);
	int count = 0;
	char label[64];

	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world,
			from = (plan->rank - step + plan->world) % plan->world;
		size_t first = ddp_segment(bucket, plan->world, from, &peer_count);

		add_parameters(ddp, &count, to, arena, own, own + own_count, 0);
		add_parameters(ddp, &count, from, arena, first, first + peer_count, 1);
	}
	comm_place(ddp->comm, ddp->step, number);
	snprintf(label, sizeof label, "weights of bucket %d of step %" PRIu64, number, ddp->step);
	return comm_reduce(ddp->comm, label,
		&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
}

void ddp_allgather_weights(struct ddp *ddp, float *arena)
{
	for (int i = ddp->bucket_count - 1;
		 ddp->zero && ddp->plan.world > 1 && !ddp->alone && i >= ddp->heads; i--)
		ddp->last_allgather = ddp->allgathers[i] = allgather_bucket(ddp, i, arena);
}

static int wait_for(struct ddp *ddp, comm_ticket ticket, double *waited, struct err *err)
{
	double begun = clock_now();

	if (ticket <= ddp->whole)
		return 0;
	int rc = comm_wait(ddp->comm, ticket, err);
	*waited += clock_now() - begun;
	if (rc == 0)
		ddp->whole = ticket;
	return rc;
}

/* All-gathers start with the last bucket; so when the bucket with the layer's first element has
 * come, those after it have come, too. */
void ddp_wait_weights(void *arg, int layer)
{
	struct ddp *ddp = arg;
	struct err kept; /* unused: the next wait on the communicator returns the error again */
	int first = ddp->heads;

	if (ddp->whole == ddp->last_allgather)
		return;
	while (ddp->buckets[first].layer < layer)
		first++;
	wait_for(ddp, ddp->allgathers[first], &ddp->waited, &kept);
}

int ddp_whole(struct ddp *ddp, double *exposed, struct err *err)
{
	return wait_for(ddp, ddp->last_allgather, exposed, err);
}
