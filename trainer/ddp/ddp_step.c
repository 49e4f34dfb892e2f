/* SPDX-License-Identifier: Apache-2.0 */
/* A step of data parallelism on the training's thread: takes each slot's gradients, and queues what
 * is complete. A rank whose slots make up several nodes of the tree has all of these pieces but the
 * last one complete before its last slot. These early pieces travel while later slots are computed,
 * and wait at the owners of the segments. The last piece becomes complete bucket by bucket, in the
 * last backward pass. Canonical: every rank then gets the others' last pieces of its segment, adds
 * all pieces in the tree's order, and sends the sum to all. It uses only sends and receives, so
 * that no library chooses an order. */
#include <inttypes.h>
#include <stdio.h>

#include "trainer/ddp/ddp_private.h"

#define LAST_PIECES 0 /* in the place of a number of slots: the ranks' last pieces */

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

void ddp_add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements,
	int receive)
{
	ddp->transfers[(*count)++] =
		(struct comm_transfer) { peer, at, elements * sizeof *at, receive };
}

/* The number of the early piece that a rank completes with exactly this many slots, or of its last
 * piece; -1 for none. */
static int piece_due(const struct ddp_plan *plan, int rank, int ended)
{
	int last = plan->piece_start[rank + 1] - 1;

	for (int number = plan->piece_start[rank]; number < last && ended != LAST_PIECES; number++)
		if (plan->piece_after[number] == ended)
			return number;
	return ended == LAST_PIECES ? last : -1;
}

/* Sends this rank's piece to the owners of the segments, and receives the others' for its own
 * segment. Returns the number of transfers; 0 where no rank completes a piece. */
static int add_pieces(struct ddp *ddp, const struct ddp_bucket *bucket, int ended)
{
	const struct ddp_plan *plan = &ddp->plan;
	int own = piece_due(plan, plan->rank, ended), count = 0;
	size_t own_count, peer_count;

	ddp_segment(bucket, plan->world, plan->rank, &own_count);
	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world,
			from = (plan->rank - step + plan->world) % plan->world;
		int theirs = piece_due(plan, from, ended);
		size_t first = ddp_segment(bucket, plan->world, to, &peer_count);

		if (own >= 0)
			ddp_add_transfer(ddp, &count, to, ddp_piece_at(ddp, bucket, plan->rank, own, first),
				peer_count, 0);
		if (theirs >= 0)
			ddp_add_transfer(ddp, &count, from, ddp_piece_at(ddp, bucket, from, theirs, 0),
				own_count, 1);
	}
	return count;
}

/* Sends the sums of this rank's segment to all, and receives theirs, in transfers [begin, return
 * value). Sums stay with their owners with zero; and those of a split embedding's head always do,
 * since the embedding's sums contain them. */
static int add_sums(struct ddp *ddp, const struct ddp_bucket *bucket, int begin)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t own_count, peer_count, own = ddp_segment(bucket, plan->world, plan->rank, &own_count);
	int end = begin;

	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world,
			from = (plan->rank - step + plan->world) % plan->world;
		size_t theirs = ddp_segment(bucket, plan->world, from, &peer_count);

		if (ddp->zero || !ddp_bucket_is_of_rows(ddp->table, bucket))
			break;
		ddp_add_transfer(ddp, &end, to, ddp->arenas[0] + own, own_count, 0);
		ddp_add_transfer(ddp, &end, from, ddp->arenas[0] + theirs, peer_count, 1);
	}
	return end;
}

/* Queues the pieces that the ranks complete with up to `ended` slots, if they are not queued yet.
 * Every rank calls it at the end of each slot but its last, and for all the rest before its first
 * bucket: so the order of all exchanges is the same on all ranks. */
static void launch_early(struct ddp *ddp, int ended)
{
	char label[64];
	int most;

	tree_rank_slots(ddp->plan.slots, ddp->plan.world, 0, &most);
	for (; ddp->travelled < ended && ddp->travelled < most; ddp->travelled++)
		for (int i = 0; i < ddp->bucket_count; i++) {
			int count = add_pieces(ddp, &ddp->buckets[i], ddp->travelled + 1);

			if (count == 0)
				break;
			comm_place(ddp->comm, ddp->step, i);
			snprintf(label, sizeof label, "early pieces of bucket %d of step %" PRIu64, i,
				ddp->step);
			ddp->last = comm_reduce(ddp->comm, label,
				&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
		}
}

/* Queues the last pieces of a bucket, and its sums. */
static comm_ticket reduce(struct ddp *ddp, struct ddp_job *job, comm_prepare *merge,
	const char *label)
{
	int pieces = add_pieces(ddp, job->bucket, LAST_PIECES);

	job->next = job->blocks ? job->blocks->begin : 0;
	return comm_reduce(ddp->comm, label,
		&(struct comm_reduction) { .pieces = ddp->transfers,
			.piece_count = pieces,
			.sums = ddp->transfers + pieces,
			.sum_count = add_sums(ddp, job->bucket, pieces) - pieces,
			.prepare = merge,
			.add = ddp_add_run,
			.arg = job });
}

/* Queues the reduction of the next bucket. */
static void launch_bucket(struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_job *job = &ddp->jobs[ddp->launched];
	float *gradients = ddp->arenas[0] + job->bucket->first;
	bool merges = plan->merge_end[plan->count - 1] > ddp_plan_merges(plan, plan->count - 1);
	char label[64];

	launch_early(ddp, plan->slots);
	comm_place(ddp->comm, ddp->step, ddp->launched);
	snprintf(label, sizeof label, "bucket %d of step %" PRIu64, ddp->launched++, ddp->step);
	if (ddp->segmented) {
		ddp->last = reduce(ddp, job, merges ? ddp_merge_bucket : NULL, label);
		return;
	}
	if (merges)
		ddp->last = comm_call(ddp->comm, label, ddp_merge_alone, job);
	if (plan->world > 1)
		ddp->last = ddp->alone ? comm_mark(ddp->comm, label)
			: ddp->bf16 ? comm_allreduce_bf16(ddp->comm, label, gradients, job->bucket->count)
						: comm_allreduce(ddp->comm, label, gradients, job->bucket->count);
}

/* Buckets become complete only with the last slot's gradients. */
void ddp_ready(void *arg, int layer)
{
	struct ddp *ddp = arg;

	while (ddp->ended == ddp->plan.count - 1 && ddp->launched < ddp->bucket_count
		&& ddp->buckets[ddp->launched].layer <= layer)
		launch_bucket(ddp);
}

void ddp_launch_rest(struct ddp *ddp)
{
	while (ddp->launched < ddp->bucket_count)
		launch_bucket(ddp);
}

void ddp_slot_end(struct ddp *ddp, int64_t valid)
{
	const struct ddp_plan *plan = &ddp->plan;
	int slot = ddp->ended++;

	ddp->valid[slot] = valid;
	if (ddp->ended == plan->count) {
		ddp_launch_rest(ddp);
		return;
	}
	ddp_merge_slot(ddp, slot, 0, tensor_table_gradients(ddp->table));
	if (!ddp->late)
		launch_early(ddp, ddp->ended);
}
