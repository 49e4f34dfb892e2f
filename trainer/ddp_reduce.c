/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction of one bucket. Canonical: the last slot's additions, then every rank gets the others' last pieces of its
 * segment (the early ones are there), adds all in the tree's order, and sends the sum to all. Only sends and receives, so that no library chooses an order. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "trainer/ddp_private.h"

/* The additions on the communicator's thread take one core: the others belong to the backward pass. */
static void limit_threads(void)
{
#ifdef _OPENMP
	omp_set_num_threads(1); /* of teams that this thread makes */
#endif
}

/* The last slot's part of the binary counter, for this bucket only. */
static int merge_bucket(void *arg, struct err *err)
{
	struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	const struct ddp_plan *plan = &ddp->plan;
	int from = plan->count > 1 ? plan->merge_end[plan->count - 2] : 0;

	limit_threads();
	for (int i = from; i < plan->merge_end[plan->count - 1]; i++) {
		float *left = ddp->arenas[plan->merges[i].left] + job->bucket->first;
		ddp->ops->add(ddp->ops, left, left, ddp->arenas[plan->merges[i].right] + job->bucket->first, job->bucket->count);
	}
	return 0;
}

/* Where another rank's last piece of a segment is received: this rank's own has no place there. */
static float *staging_at(const struct ddp *ddp, int rank)
{
	return ddp->staging + (size_t)(rank < ddp->plan.rank ? rank : rank - 1) * ddp->segment_max;
}

struct combination {
	struct ddp *ddp;
	float *result;
	size_t count;
	int left; /* additions still to do; the last one writes the result */
};

static void add_piece(void *arg, int left, int right)
{
	struct combination *c = arg;
	float **at = c->ddp->piece_at;

	c->ddp->ops->add(c->ddp->ops, --c->left == 0 ? c->result : at[left], at[left], at[right], c->count);
}

/* Where piece `number` of a segment lies, `first` being the segment's place in an arena. */
static float *piece_at(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, int number, size_t first)
{
	const struct ddp_plan *plan = &ddp->plan;

	if (rank == plan->rank)
		return ddp->arenas[plan->piece_arena[number - plan->piece_start[rank]]] + first;
	return ddp_plan_is_early(plan, rank, number) ? ddp_early_at(ddp, number, bucket) : staging_at(ddp, rank);
}

/* Runs when all pieces of this rank's segment are here. */
static int combine(void *arg, struct err *err)
{
	struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	const struct ddp_plan *plan = &ddp->plan;
	struct combination c = { .ddp = ddp, .left = plan->piece_start[plan->world] - 1 };
	size_t first = ddp_segment(job->bucket, plan->world, plan->rank, &c.count);

	limit_threads();
	c.result = ddp->arenas[0] + first;
	for (int rank = 0; rank < plan->world; rank++)
		for (int number = plan->piece_start[rank]; number < plan->piece_start[rank + 1]; number++)
			ddp->piece_at[number] = piece_at(ddp, job->bucket, rank, number, first);
	if (c.count > 0)
		tree_combine(plan->slots, plan->world, add_piece, &c);
	return 0;
}

void ddp_add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements, int receive)
{
	ddp->transfers[(*count)++] = (struct comm_transfer){ peer, at, elements * sizeof *at, receive };
}

/* Every rank's last piece goes to the owners of the segments. */
static comm_ticket exchange_pieces(struct ddp *ddp, struct ddp_job *job, const char *label)
{
	const struct ddp_plan *plan = &ddp->plan;
	float *own = ddp->arenas[plan->piece_arena[plan->pieces - 1]];
	size_t own_count, peer_count;
	int count = 0;

	ddp_segment(job->bucket, plan->world, plan->rank, &own_count);
	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world, from = (plan->rank - step + plan->world) % plan->world;
		size_t first = ddp_segment(job->bucket, plan->world, to, &peer_count);

		ddp_add_transfer(ddp, &count, to, own + first, peer_count, 0);
		ddp_add_transfer(ddp, &count, from, staging_at(ddp, from), own_count, 1);
	}
	return comm_exchange(ddp->comm, label, ddp->transfers, count, combine, job);
}

/* Every rank's sum of its segment goes to all others, into place. */
static comm_ticket spread_sums(struct ddp *ddp, const struct ddp_bucket *bucket, const char *label)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t own_count, peer_count;
	size_t own = ddp_segment(bucket, plan->world, plan->rank, &own_count);
	int count = 0;

	for (int step = 1; step < plan->world; step++) {
		int to = (plan->rank + step) % plan->world, from = (plan->rank - step + plan->world) % plan->world;
		size_t first = ddp_segment(bucket, plan->world, from, &peer_count);

		ddp_add_transfer(ddp, &count, to, ddp->arenas[0] + own, own_count, 0);
		ddp_add_transfer(ddp, &count, from, ddp->arenas[0] + first, peer_count, 1);
	}
	return comm_exchange(ddp->comm, label, ddp->transfers, count, NULL, NULL);
}

void ddp_launch(struct ddp *ddp)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct ddp_job *job = &ddp->jobs[ddp->launched];
	int before = plan->count > 1 ? plan->merge_end[plan->count - 2] : 0;
	char label[64];

	ddp_early_launch(ddp, plan->slots);
	comm_place(ddp->comm, ddp->step, ddp->launched);
	snprintf(label, sizeof label, "bucket %d of step %" PRIu64, ddp->launched++, ddp->step);
	if (plan->merge_end[plan->count - 1] > before)
		ddp->last = comm_call(ddp->comm, label, merge_bucket, job);
	if (plan->world == 1)
		return;
	if (ddp->alone) {
		ddp->last = comm_mark(ddp->comm, label);
		return;
	}
	if (ddp->native) {
		comm_ticket (*reduce)(struct comm *, const char *, float *, size_t) = ddp->bf16 ? comm_allreduce_bf16 : comm_allreduce;
		ddp->last = reduce(ddp->comm, label, ddp->arenas[0] + job->bucket->first, job->bucket->count);
		return;
	}
	ddp->last = exchange_pieces(ddp, job, label);
	if (ddp->zero)
		return;
	snprintf(label, sizeof label, "sum of bucket %d of step %" PRIu64, ddp->launched - 1, ddp->step);
	ddp->last = spread_sums(ddp, job->bucket, label);
}

/* Its pieces of the segments that it does not own, and its own segment to all others; with zero that is of the weights, which a
 * split embedding has once. */
size_t ddp_bucket_traffic(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, int pieces)
{
	size_t others = (size_t)ddp->plan.world - 1, own;

	if (ddp->zero && !ddp_bucket_is_of_rows(ddp->table, bucket))
		others = 0;
	ddp_segment(bucket, ddp->plan.world, rank, &own);
	return ((bucket->count - own) * (size_t)pieces + own * others) * (ddp->bf16 ? 2 : sizeof(float));
}

size_t ddp_staging_bytes(const struct ddp *ddp)
{
	size_t last = ddp->staging ? (size_t)(ddp->plan.world - 1) * ddp->segment_max : 0;

	return (last + (size_t)ddp->early_pieces * ddp->share) * sizeof(float);
}

int ddp_reduce_prepare(struct ddp *ddp, struct err *err)
{
	const struct ddp_plan *plan = &ddp->plan;
	size_t world = (size_t)plan->world, count;

	for (int i = 0; i < ddp->bucket_count; i++) {
		ddp->jobs[i] = (struct ddp_job){ ddp, &ddp->buckets[i] };
		ddp_segment(&ddp->buckets[i], plan->world, plan->rank, &count);
		ddp->segment_max = count > ddp->segment_max ? count : ddp->segment_max;
	}
	ddp->piece_at = calloc((size_t)plan->piece_start[world], sizeof *ddp->piece_at);
	/* To and from each other rank; of weights, the runs between rows that are no parameters. */
	ddp->transfers = calloc(2 * world * (1 + (ddp->zero ? tensor_table_others(ddp->table) : 0)), sizeof *ddp->transfers);
	if (!ddp->piece_at || !ddp->transfers)
		return err_set(err, "ddp: couldn't prepare the reduction: out of memory");
	if (world == 1 || ddp->native || ddp->alone)
		return 0;
	ddp->staging = ddp->ops->alloc(ddp->ops, (world - 1) * ddp->segment_max * sizeof(float));
	if (!ddp->staging)
		return err_set(err, "ddp: couldn't allocate %.1f MB to receive pieces of other ranks: out of memory",
			(double)((world - 1) * ddp->segment_max * sizeof(float)) * 1e-6);
	return ddp_early_prepare(ddp, err);
}
