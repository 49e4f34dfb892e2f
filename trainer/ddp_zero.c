/* SPDX-License-Identifier: Apache-2.0 */
/* Who owns what with --zero 1: of every bucket each rank has a segment of whole blocks of the norm, so that it sums and updates
 * what it has reduced, and nobody else does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "trainer/ddp_private.h"

/* Neighbours of one rank become one. */
static void add_shard(struct ddp *ddp, int rank, size_t first, size_t count)
{
	struct zero_shard *last = ddp->shard_count > 0 ? &ddp->shards[ddp->shard_count - 1] : NULL;

	if (count == 0)
		return;
	if (last && last->rank == rank && last->end == first)
		last->end += count;
	else
		ddp->shards[ddp->shard_count++] = (struct zero_shard){ rank, first, first + count };
}

static void list_shards(struct ddp *ddp)
{
	int world = ddp->plan.world;

	for (int rank = 0; rank < world; rank++) {
		ddp->shards_of[rank] = ddp->shard_count;
		for (int i = 0; i < ddp->bucket_count; i++) {
			size_t count, first = ddp_segment(&ddp->buckets[i], world, rank, &count);

			add_shard(ddp, rank, first, count);
		}
	}
	ddp->shards_of[world] = ddp->shard_count;
}

int ddp_zero_prepare(struct ddp *ddp, struct err *err)
{
	size_t world = (size_t)ddp->plan.world;

	if (ddp->native || ddp->table->split_count)
		return err_fail(err, EXIT_USAGE, "ddp: couldn't share the optimizer out: --zero 1 goes with --reduction canonical and "
			"without --split-embedding only");
	ddp->cuts = ddp_buckets_align(ddp->table, ddp->buckets, &ddp->bucket_count, ddp->plan.world);
	ddp->shards = calloc((size_t)ddp->bucket_count * world, sizeof *ddp->shards);
	ddp->shards_of = calloc(world + 1, sizeof *ddp->shards_of);
	if (!ddp->cuts || !ddp->shards || !ddp->shards_of)
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

int ddp_spread(struct ddp *ddp, float *arena, double *exposed, struct err *err)
{
	double begun = clock_now();
	comm_ticket last = 0;
	char label[64];

	if (ddp->plan.world == 1 || ddp->alone)
		return 0;
	for (int i = 0; i < ddp->bucket_count; i++) {
		snprintf(label, sizeof label, "weights of bucket %d of step %" PRIu64, i, ddp->step);
		last = ddp_spread_segments(ddp, &ddp->buckets[i], arena, label);
	}
	int rc = comm_wait(ddp->comm, last, err);
	*exposed += clock_now() - begun;
	return rc;
}

int ddp_scatter(struct ddp *ddp, float *arena, struct err *err)
{
	const struct ddp_plan *plan = &ddp->plan;
	comm_ticket last = 0;
	size_t elements;

	for (int i = 0; i < ddp->bucket_count && plan->world > 1; i++) {
		int count = 0;

		for (int rank = 1; rank < plan->world; rank++) {
			size_t first = ddp_segment(&ddp->buckets[i], plan->world, rank, &elements);

			if (plan->rank == 0 || plan->rank == rank)
				ddp_add_transfer(ddp, &count, plan->rank == 0 ? rank : 0, arena + first, elements, plan->rank != 0);
		}
		last = comm_exchange(ddp->comm, "moments", ddp->transfers, count, NULL, NULL);
	}
	return last ? comm_wait(ddp->comm, last, err) : 0;
}
