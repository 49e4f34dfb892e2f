/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership with --zero 1: each rank has a segment of every bucket, made of whole blocks of the
 * norm, and it alone sums and updates these elements. */
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
			size_t count, first = ddp_owned(ddp, &ddp->buckets[i], ddp->nodes.place[rank], &count);

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
	size_t rank = (size_t)comm_rank(ddp->comm), first = ddp->shards_of[rank];
	*count = ddp->shards_of[rank + 1] - first;
	return ddp->shards + first;
}

/* Sends every rank's weights of a bucket to those who carry them. */
static void launch_owned(struct ddp *ddp, struct ddp_job *job, float *arena)
{
	int count = ddp_add_owned(ddp, job->bucket, arena, true, 0);

	job->reduced = ddp->last_allgather = ddp->allgathers[job - ddp->jobs] =
		ddp_queue(ddp, "weights of bucket", job->bucket,
			&(struct comm_reduction) { .pieces = ddp->transfers, .piece_count = count });
}

/* They go on within the nodes. */
static void launch_carried(struct ddp *ddp, const struct ddp_job *job, float *arena)
{
	if (!ddp_shares_node(ddp))
		return;
	int count = ddp_add_carried(ddp, job->bucket, arena, true);
	ddp->last_allgather = ddp->allgathers[job - ddp->jobs] =
		ddp_queue(ddp, "weights of bucket", job->bucket,
			&(struct comm_reduction) { .pieces = ddp->transfers,
				.piece_count = count,
				.after = job->reduced });
}

/* Nothing is computed of them, so the next bucket's begin at once: those of one bucket travel
 * between the nodes while those of the one before go on within them. */
void ddp_allgather_weights(struct ddp *ddp, float *arena)
{
	struct ddp_job *first = ddp->jobs + ddp->heads, *last = ddp->jobs + ddp->bucket_count - 1;

	if (!ddp->zero || ddp->plan.world == 1 || ddp->alone)
		return;
	for (struct ddp_job *job = last; job >= first; job--) {
		launch_owned(ddp, job, arena);
		if (job < last)
			launch_carried(ddp, job + 1, arena);
	}
	launch_carried(ddp, first, arena);
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
