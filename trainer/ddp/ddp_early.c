/* SPDX-License-Identifier: Apache-2.0 */
/* Early pieces: a rank whose slots make up several nodes of the tree has all of these but the last
 * one complete before its last slot. They travel at once, while later slots are computed, and wait
 * at the owners of the segments until the last pieces come. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/ddp/ddp_private.h"

/* The number of the early piece that a rank completes with exactly this many slots; -1 for none. */
static int finished_piece(const struct ddp_plan *plan, int rank, int ended)
{
	for (int number = plan->piece_start[rank]; ddp_plan_is_early(plan, rank, number); number++)
		if (plan->piece_after[number] == ended)
			return number;
	return -1;
}

float *ddp_early_at(const struct ddp *ddp, int number, const struct ddp_bucket *bucket)
{
	return ddp->early + (size_t)ddp->early_place[number] * ddp->share
		+ ddp->share_start[bucket - ddp->buckets];
}

/* Queues one bucket of the pieces that the ranks complete with `ended` slots. */
static void exchange(struct ddp *ddp, const struct ddp_bucket *bucket, int ended)
{
	const struct ddp_plan *plan = &ddp->plan;
	int own = finished_piece(plan, plan->rank, ended), count = 0;
	size_t own_count, peer_count;
	char label[64];

	ddp_segment(bucket, plan->world, plan->rank, &own_count);
	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world,
			from = (plan->rank - step + plan->world) % plan->world;
		int theirs = finished_piece(plan, from, ended);
		size_t first = ddp_segment(bucket, plan->world, to, &peer_count);

		if (own >= 0)
			ddp_add_transfer(ddp, &count, to,
				ddp->arenas[plan->piece_arena[own - plan->piece_start[plan->rank]]] + first,
				peer_count, 0);
		if (theirs >= 0)
			ddp_add_transfer(ddp, &count, from, ddp_early_at(ddp, theirs, bucket), own_count, 1);
	}
	comm_place(ddp->comm, ddp->step, (int)(bucket - ddp->buckets));
	snprintf(label, sizeof label, "early pieces of bucket %d of step %" PRIu64,
		(int)(bucket - ddp->buckets), ddp->step);
	ddp->last = comm_reduce(ddp->comm, label,
		&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
}

void ddp_early_launch(struct ddp *ddp, int ended)
{
	const struct ddp_plan *plan = &ddp->plan;
	int most;

	tree_rank_slots(plan->slots, plan->world, 0, &most);
	for (; ddp->travelled < ended && ddp->travelled < most; ddp->travelled++) {
		bool any = false;

		for (int rank = 0; rank < plan->world && !any; rank++)
			any = finished_piece(plan, rank, ddp->travelled + 1) >= 0;
		for (int i = 0; any && i < ddp->bucket_count; i++)
			exchange(ddp, &ddp->buckets[i], ddp->travelled + 1);
	}
}

int ddp_early_prepare(struct ddp *ddp, struct err *err)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t count;

	ddp->early_place = calloc((size_t)plan->piece_start[plan->world], sizeof *ddp->early_place);
	ddp->share_start = calloc((size_t)ddp->bucket_count, sizeof *ddp->share_start);
	if (!ddp->early_place || !ddp->share_start)
		return err_set(err, "ddp: couldn't prepare the reduction: out of memory");
	for (int i = 0; i < ddp->bucket_count; i++) {
		ddp_segment(&ddp->buckets[i], plan->world, plan->rank, &count);
		ddp->share_start[i] = ddp->share;
		ddp->share += count;
	}
	for (int rank = 0; rank < plan->world; rank++)
		for (int number = plan->piece_start[rank];
			 rank != plan->rank && ddp_plan_is_early(plan, rank, number); number++)
			ddp->early_place[number] = ddp->early_pieces++;
	size_t bytes = (size_t)ddp->early_pieces * ddp->share * sizeof(float);
	ddp->early = bytes ? ddp->device->alloc(ddp->device, bytes) : NULL;
	if (bytes && !ddp->early)
		return device_check(ddp->device, err) < 0
			? -1
			: err_set(err,
				"ddp: couldn't allocate %.1f MB to receive early pieces of other ranks: out of "
				"memory; a number of ranks that divides --slots needs none",
				(double)bytes * 1e-6);
	return 0;
}
