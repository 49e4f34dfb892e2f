/* SPDX-License-Identifier: Apache-2.0 */
/* The additions of a step: a rank's slots, and with the canonical reduction all pieces of a
 * segment, in the tree's order, and the squares of the sum for the norm. The last slot's and those
 * of segments run on the communicator's thread. */
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

void ddp_merge_slot(struct ddp *ddp, int slot, size_t first, size_t count)
{
	const struct ddp_plan *plan = &ddp->plan;

	for (int i = ddp_plan_merges(plan, slot); i < plan->merge_end[slot]; i++) {
		float *left = ddp->arenas[plan->additions[i].left] + first;
		ddp->ops->add(ddp->ops, left, left, ddp->arenas[plan->additions[i].right] + first, count);
	}
}

void ddp_merge_bucket(void *arg)
{
	const struct ddp_job *job = arg;

	limit_threads();
	ddp_merge_slot(job->ddp, job->ddp->plan.count - 1, job->bucket->first, job->bucket->count);
}

int ddp_merge_alone(void *job, struct err *err)
{
	ddp_merge_bucket(job);
	return 0;
}

float *ddp_piece_at(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, int number,
	size_t first)
{
	const struct ddp_plan *plan = &ddp->plan;

	if (rank == plan->rank)
		return ddp->arenas[plan->piece_arena[number - plan->piece_start[rank]]] + first;
	if (ddp_plan_is_early(plan, rank, number))
		return ddp->early + (size_t)ddp->early_place[number] * ddp->share
			+ ddp->share_start[bucket - ddp->buckets];
	/* this rank's own last piece needs no place there */
	return ddp->staging + (size_t)(rank < plan->rank ? rank : rank - 1) * ddp->segment_max;
}

/* One addition after the other, where the ops can't do all at once. The stack grows in the place of
 * the pieces that are on it. */
static void add_in_turn(struct ddp *ddp, int pieces, float *sum, size_t count)
{
	float **stack = ddp->piece_at;

	/* the last addition writes the sum */
	for (int n = 0, depth = 0, left = pieces - 1; n < pieces; n++) {
		stack[depth++] = stack[n];
		for (int i = 0; i < ddp->additions[n]; i++, depth--)
			ddp->ops->add(ddp->ops, --left == 0 ? sum : stack[depth - 2], stack[depth - 2],
				stack[depth - 1], count);
	}
}

void ddp_join_split(struct ddp *ddp, size_t first, size_t end)
{
	const struct tensor_table *table = ddp->table;
	size_t from = table->split_offset, to = from + table->split_count;

	first = first > from ? first : from;
	end = end < to ? end : to;
	if (first >= end)
		return;
	float *whole = ddp->arenas[0] + first,
		  *head = ddp->arenas[0] + table->elements + (first - from);
	ddp->ops->add(ddp->ops, whole, head, whole, end - first);
}

static void sum_run(struct ddp *ddp, size_t begin, size_t end, double *sums)
{
	for (int i = 0; i < ddp->table->count; i++) {
		const struct tensor *row = &ddp->table->rows[i];
		size_t from = ddp->block_start[i], to = ddp->block_start[i + 1];

		from = from > begin ? from : begin;
		to = to < end ? to : end;
		if (from >= to)
			continue;
		size_t first = (from - ddp->block_start[i]) * NORM_BLOCK,
			   last = (to - ddp->block_start[i]) * NORM_BLOCK;
		last = last < row->count ? last : row->count;
		ddp->ops->square_sums(ddp->ops, sums + (from - begin), ddp->arenas[0] + row->offset + first,
			last - first);
	}
}

/* Number of the norm's blocks that lie entirely before an element. */
static size_t blocks_within(const struct ddp *ddp, size_t element)
{
	int i = ddp->table->count;

	while (i > 0 && ddp->table->rows[i - 1].offset > element)
		i--;
	if (i == 0)
		return 0;
	size_t within = element - ddp->table->rows[i - 1].offset;
	return within >= ddp->table->rows[i - 1].count ? ddp->block_start[i]
												   : ddp->block_start[i - 1] + within / NORM_BLOCK;
}

/* Sums the squares of those of a segment's blocks that end at or before element `end`, up to which
 * the segment is reduced. */
static void sum_blocks(struct ddp_job *job, size_t end)
{
	size_t until = blocks_within(job->ddp, end);

	if (until <= job->next)
		return;
	sum_run(job->ddp, job->next, until, job->sums + (job->next - job->blocks->begin));
	job->next = until;
}

int ddp_add_run(void *arg, size_t first_byte, size_t bytes, struct err *err)
{
	struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	const struct ddp_plan *plan = &ddp->plan;
	const int pieces = plan->piece_start[plan->world];
	size_t ignored, at = first_byte / sizeof(float), count = bytes / sizeof(float),
					first = ddp_segment(job->bucket, plan->world, plan->rank, &ignored);
	float *sum = ddp->arenas[0] + first + at;

	limit_threads();
	for (int rank = 0; rank < plan->world; rank++)
		for (int number = plan->piece_start[rank]; number < plan->piece_start[rank + 1]; number++)
			ddp->piece_at[number] = ddp_piece_at(ddp, job->bucket, rank, number, first) + at;
	if (ddp->ops->tree_reduce && pieces <= OPS_TREE_REDUCE_MAX)
		ddp->ops->tree_reduce(ddp->ops, sum, ddp->piece_at, ddp->additions, pieces, count);
	else
		add_in_turn(ddp, pieces, sum, count);
	if (ddp_bucket_is_of_rows(ddp->table, job->bucket)) {
		ddp_join_split(ddp, first + at, first + at + count);
		sum_blocks(job, first + at + count);
	}
	return 0;
}

void ddp_sum_all_blocks(struct ddp *ddp)
{
	double *sums = ddp->figures + ddp->slots_max;

	for (size_t i = 0; i < ddp->run_count; i++) {
		const struct ddp_blocks *run = &ddp->runs[i];

		if (run->rank != ddp->plan.rank)
			continue;
		sum_run(ddp, run->begin, run->end, sums);
		sums += run->end - run->begin;
	}
}
