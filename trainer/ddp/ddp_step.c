/* SPDX-License-Identifier: Apache-2.0 */
/* A step of data parallelism on the training's thread: takes each slot's gradients, and queues what
 * is complete. A rank whose slots make up several nodes of the tree has all of these pieces but the
 * last one complete before its last slot. These early pieces travel while later slots are computed,
 * and wait at the owners of the segments. The last piece becomes complete bucket by bucket, in the
 * last backward pass. Canonical: every rank then gets the others' last pieces of its segment, adds
 * all pieces in the tree's order, and sends the sum to all. Where several ranks share a node, they
 * first add what they have on their node, and what comes back goes on within it (ddp_nodes.h). It
 * uses only sends and receives, so that no library chooses an order. */
#include <inttypes.h>
#include <stdio.h>

#include "trainer/ddp/ddp_private.h"

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

/* Also tells the flight recorder where the operation belongs to. */
static void label_of(struct ddp *ddp, const char *what, const struct ddp_bucket *bucket,
	char label[64])
{
	int number = (int)(bucket - ddp->buckets);

	comm_place(ddp->comm, ddp->step, number);
	snprintf(label, 64, "%s %d of step %" PRIu64, what, number, ddp->step);
}

comm_ticket ddp_queue(struct ddp *ddp, const char *what, const struct ddp_bucket *bucket,
	const struct comm_reduction *reduction)
{
	char label[64];

	label_of(ddp, what, bucket, label);
	return comm_reduce(ddp->comm, label, reduction);
}

/* Queues the pieces that the ranks complete with up to `ended` slots, if they are not queued yet.
 * Every rank calls it at the end of each slot but its last, and for all the rest before its first
 * bucket: so the order of all exchanges is the same on all ranks. */
static void launch_early(struct ddp *ddp, int ended)
{
	int most;

	tree_rank_slots(ddp->plan.slots, ddp->plan.world, 0, &most);
	for (; ddp->travelled < ended && ddp->travelled < most; ddp->travelled++)
		for (int i = 0; i < ddp->bucket_count; i++) {
			int ending = ddp->travelled + 1,
				count = ddp_has_nodes(ddp) ? ddp_add_pieces_on_node(ddp, &ddp->buckets[i], ending)
										   : ddp_add_pieces_between(ddp, &ddp->buckets[i], ending);

			if (count == 0)
				break;
			ddp->last = ddp_queue(ddp, "early pieces of bucket", &ddp->buckets[i],
				&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
		}
}

/* Adds the pieces of a node's ranks at those who carry them, while the bucket before still travels
 * between the nodes. */
static void launch_on_node(struct ddp *ddp, struct ddp_job *job, comm_prepare *merge)
{
	int pieces = ddp_add_pieces_on_node(ddp, job->bucket, LAST_PIECES);

	ddp->last = ddp_queue(ddp, "pieces of bucket", job->bucket,
		&(struct comm_reduction) { .pieces = ddp->transfers,
			.piece_count = pieces,
			.prepare = merge,
			.add = ddp_add_on_node,
			.arg = job,
			.ahead = true });
}

/* The sums stay with their owners with zero; and those of a split embedding's head always do, since
 * the embedding's sums contain them. */
static bool is_spread(const struct ddp *ddp, const struct ddp_bucket *bucket)
{
	return !ddp->zero && ddp_bucket_is_of_rows(ddp->table, bucket);
}

/* The pieces go to the owners, and the sums to those who carry them. */
static void launch_between(struct ddp *ddp, struct ddp_job *job, comm_prepare *merge)
{
	int pieces = ddp_add_pieces_between(ddp, job->bucket, LAST_PIECES), end = pieces;

	if (is_spread(ddp, job->bucket))
		end = ddp_add_owned(ddp, job->bucket, ddp->arenas[0], false, pieces);
	job->next = job->blocks ? job->blocks->begin : 0;
	job->reduced = ddp->last = ddp_queue(ddp, "bucket", job->bucket,
		&(struct comm_reduction) { .pieces = ddp->transfers,
			.piece_count = pieces,
			.sums = ddp->transfers + pieces,
			.sum_count = end - pieces,
			.prepare = merge,
			.add = ddp_add_run,
			.arg = job });
}

/* The sums go on within the nodes. */
static void launch_spread(struct ddp *ddp, const struct ddp_job *job)
{
	if (!ddp_shares_node(ddp) || !is_spread(ddp, job->bucket))
		return;
	int count = ddp_add_carried(ddp, job->bucket, ddp->arenas[0], false);
	ddp->last = ddp_queue(ddp, "sums of bucket", job->bucket,
		&(struct comm_reduction) { .pieces = ddp->transfers,
			.piece_count = count,
			.ahead = true,
			.after = job->reduced });
}

/* A bucket's sums go on only behind the next bucket's pieces, which need not wait for them. */
static void launch_segments(struct ddp *ddp, struct ddp_job *job, comm_prepare *merge)
{
	bool shares = ddp_shares_node(ddp);

	if (shares)
		launch_on_node(ddp, job, merge);
	launch_between(ddp, job, shares ? NULL : merge);
	if (job > ddp->jobs)
		launch_spread(ddp, job - 1);
	if (job + 1 == ddp->jobs + ddp->bucket_count)
		launch_spread(ddp, job);
}

/* Queues the reduction of the next bucket. */
static void launch_bucket(struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_job *job = &ddp->jobs[ddp->launched++];
	float *gradients = ddp->arenas[0] + job->bucket->first;
	bool merges = plan->merge_end[plan->count - 1] > ddp_plan_merges(plan, plan->count - 1);
	char label[64];

	launch_early(ddp, plan->slots);
	if (ddp->segmented) {
		launch_segments(ddp, job, merges ? ddp_merge_bucket : NULL);
		return;
	}
	label_of(ddp, "bucket", job->bucket, label);
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
