/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction of one bucket. Canonical: after the last slot's additions every rank gets the
 * others' last pieces of its segment (it has the early ones already), adds all pieces in the tree's
 * order, and sends the sum to all. It uses only sends and receives, so that no library chooses an
 * order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "trainer/ddp/ddp_private.h"

/* The additions on the communicator's thread use one core; the others belong to the backward
 * pass. */
static void limit_threads(void)
{
#ifdef _OPENMP
	omp_set_num_threads(1); /* for the teams that this thread makes */
#endif
}

/* The last slot's part of the binary counter, for this bucket only. */
static void merge_bucket(void *arg)
{
	struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	const struct ddp_plan *plan = &ddp->plan;
	int from = plan->count > 1 ? plan->merge_end[plan->count - 2] : 0;

	limit_threads();
	for (int i = from; i < plan->merge_end[plan->count - 1]; i++) {
		float *left = ddp->arenas[plan->additions[i].left] + job->bucket->first;
		ddp->ops->add(ddp->ops, left, left,
			ddp->arenas[plan->additions[i].right] + job->bucket->first, job->bucket->count);
	}
}

static int merge_alone(void *arg, struct err *err)
{
	merge_bucket(arg);
	return 0;
}

/* Where another rank's last piece of a segment is received; this rank's own piece needs no place
 * there. */
static float *staging_at(const struct ddp *ddp, int rank)
{
	return ddp->staging + (size_t)(rank < ddp->plan.rank ? rank : rank - 1) * ddp->segment_max;
}

struct combination {
	struct ddp *ddp;
	float *result;
	size_t count;
	int left; /* additions left; the last one writes the result */
};

static void add_piece(void *arg, int left, int right)
{
	struct combination *c = arg;
	float **at = c->ddp->piece_at;

	c->ddp->ops->add(c->ddp->ops, --c->left == 0 ? c->result : at[left], at[left], at[right],
		c->count);
}

/* Where piece `number` of this rank's segment lies; `first` is the segment's offset in an arena. */
static float *piece_at(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, int number,
	size_t first)
{
	const struct ddp_plan *plan = &ddp->plan;

	if (rank == plan->rank)
		return ddp->arenas[plan->piece_arena[number - plan->piece_start[rank]]] + first;
	return ddp_plan_is_early(plan, rank, number) ? ddp_early_at(ddp, number, bucket)
												 : staging_at(ddp, rank);
}

/* Called when all pieces of these bytes of this rank's segment have come. */
static int reduce_segment(void *arg, size_t first_byte, size_t bytes, struct err *err)
{
	struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	const struct ddp_plan *plan = &ddp->plan;
	struct combination c = { .ddp = ddp, .left = plan->piece_start[plan->world] - 1 };
	size_t at = first_byte / sizeof(float),
		   first = ddp_segment(job->bucket, plan->world, plan->rank, &c.count);

	limit_threads();
	c.count = bytes / sizeof(float);
	c.result = ddp->arenas[0] + first + at;
	for (int rank = 0; rank < plan->world; rank++)
		for (int number = plan->piece_start[rank]; number < plan->piece_start[rank + 1]; number++)
			ddp->piece_at[number] = piece_at(ddp, job->bucket, rank, number, first) + at;
	if (ddp->additions)
		ddp->ops->tree_reduce(ddp->ops, c.result, ddp->piece_at, ddp->additions,
			plan->piece_start[plan->world], c.count);
	else
		tree_reduce(plan->slots, plan->world, add_piece, &c);
	if (ddp_bucket_is_of_rows(ddp->table, job->bucket)) {
		ddp_join_split(ddp, first + at, first + at + c.count);
		ddp_sum_blocks(job, first + at + c.count);
	}
	return 0;
}

void ddp_add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements,
	int receive)
{
	ddp->transfers[(*count)++] =
		(struct comm_transfer) { peer, at, elements * sizeof *at, receive };
}

/* Sends every rank's last piece to the owners of the segments, and the sums to all ranks. Sums stay
 * with their owners with zero; and those of a split embedding's head always do, since the
 * embedding's sums contain them. */
static comm_ticket reduce_bucket(struct ddp *ddp, struct ddp_job *job, comm_prepare *merge,
	const char *label)
{
	const struct ddp_plan *plan = &ddp->plan;
	float *piece = ddp->arenas[plan->piece_arena[plan->pieces - 1]];
	size_t own_count, to_count, from_count;
	size_t own = ddp_segment(job->bucket, plan->world, plan->rank, &own_count);
	int pieces = 0, behind = 2 * plan->world, sums = behind; /* indexes into ddp->transfers */

	job->next = job->blocks ? job->blocks->begin : 0;
	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world,
			from = (plan->rank - step + plan->world) % plan->world;
		size_t theirs = ddp_segment(job->bucket, plan->world, to, &to_count);

		ddp_add_transfer(ddp, &pieces, to, piece + theirs, to_count, 0);
		ddp_add_transfer(ddp, &pieces, from, staging_at(ddp, from), own_count, 1);
		if (ddp->zero || !ddp_bucket_is_of_rows(ddp->table, job->bucket))
			continue;
		theirs = ddp_segment(job->bucket, plan->world, from, &from_count);
		ddp_add_transfer(ddp, &sums, to, ddp->arenas[0] + own, own_count, 0);
		ddp_add_transfer(ddp, &sums, from, ddp->arenas[0] + theirs, from_count, 1);
	}
	return comm_reduce(ddp->comm, label,
		&(struct comm_reduction) { .pieces = ddp->transfers,
			.piece_count = pieces,
			.sums = ddp->transfers + behind,
			.sum_count = sums - behind,
			.prepare = merge,
			.add = reduce_segment,
			.arg = job });
}

void ddp_launch(struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_job *job = &ddp->jobs[ddp->launched];
	bool additions =
		plan->merge_end[plan->count - 1] > (plan->count > 1 ? plan->merge_end[plan->count - 2] : 0);
	char label[64];

	ddp_early_launch(ddp, plan->slots);
	comm_place(ddp->comm, ddp->step, ddp->launched);
	snprintf(label, sizeof label, "bucket %d of step %" PRIu64, ddp->launched++, ddp->step);
	if (ddp->segmented) {
		ddp->last = reduce_bucket(ddp, job, additions ? merge_bucket : NULL, label);
		return;
	}
	if (additions)
		ddp->last = comm_call(ddp->comm, label, merge_alone, job);
	if (plan->world == 1)
		return;
	if (ddp->alone) {
		ddp->last = comm_mark(ddp->comm, label);
		return;
	}
	comm_ticket (*reduce)(struct comm *, const char *, float *, size_t) =
		ddp->bf16 ? comm_allreduce_bf16 : comm_allreduce;
	ddp->last = reduce(ddp->comm, label, ddp->arenas[0] + job->bucket->first, job->bucket->count);
}

/* A rank sends its pieces of the segments that it does not own, and its own segment to all others
 * (with zero that is of weights). A split embedding sends its own segment only once. */
size_t ddp_bucket_traffic(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank,
	int pieces)
{
	size_t others = (size_t)ddp->plan.world - 1, own;

	if (ddp->cuts && !ddp_bucket_is_of_rows(ddp->table, bucket))
		others = 0;
	ddp_segment(bucket, ddp->plan.world, rank, &own);
	return ((bucket->count - own) * (size_t)pieces + own * others)
		* (ddp->bf16 ? 2 : sizeof(float));
}

size_t ddp_staging_bytes(const struct ddp *ddp)
{
	size_t last = ddp->staging ? (size_t)(ddp->plan.world - 1) * ddp->segment_max : 0;

	return (last + (size_t)ddp->early_pieces * ddp->share) * sizeof(float);
}

/* Where the ops can do so, all pieces of a segment are added at once, by the same additions. */
static int prepare_additions(struct ddp *ddp, struct err *err)
{
	const struct ddp_plan *plan = &ddp->plan;
	int pieces = plan->piece_start[plan->world];

	if (!ddp->ops->tree_reduce || pieces > OPS_TREE_REDUCE_MAX)
		return 0;
	ddp->additions = calloc((size_t)pieces, sizeof *ddp->additions);
	if (!ddp->additions)
		return err_set(err, "ddp: couldn't prepare the reduction: out of memory");
	tree_additions(plan->slots, plan->world, ddp->additions, pieces);
	return 0;
}

int ddp_reduce_prepare(struct ddp *ddp, struct err *err)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t world = (size_t)plan->world, count;

	for (int i = 0; i < ddp->bucket_count; i++) {
		ddp->jobs[i] = (struct ddp_job) { .ddp = ddp, .bucket = &ddp->buckets[i] };
		ddp_segment(&ddp->buckets[i], plan->world, plan->rank, &count);
		ddp->segment_max = count > ddp->segment_max ? count : ddp->segment_max;
	}
	ddp->piece_at = calloc((size_t)plan->piece_start[world], sizeof *ddp->piece_at);
	/* Room to send to and receive from each other rank, for pieces and for sums; for weights, also
	 * for the runs between rows that are no parameters. */
	ddp->transfers = calloc(2 * world * (2 + (ddp->zero ? tensor_table_others(ddp->table) : 0)),
		sizeof *ddp->transfers);
	if (!ddp->piece_at || !ddp->transfers)
		return err_set(err, "ddp: couldn't prepare the reduction: out of memory");
	if (!ddp->segmented)
		return 0;
	ddp->staging = ddp->device->alloc(ddp->device, (world - 1) * ddp->segment_max * sizeof(float));
	if (!ddp->staging)
		return device_check(ddp->device, err) < 0
			? -1
			: err_set(err,
				"ddp: couldn't allocate %.1f MB to receive pieces of other ranks: out of memory",
				(double)((world - 1) * ddp->segment_max * sizeof(float)) * 1e-6);
	return prepare_additions(ddp, err) < 0 ? -1 : ddp_early_prepare(ddp, err);
}
