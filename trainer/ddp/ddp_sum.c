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

/* One addition after the other, where the ops can't do all at once. The stack grows in the place of
 * the pieces that are on it. */
static void add_in_turn(struct ops *ops, float **stack, const int *additions, int pieces,
	float *sum, size_t count)
{
	/* the last addition writes the sum */
	for (int n = 0, depth = 0, left = pieces - 1; n < pieces; n++) {
		stack[depth++] = stack[n];
		for (int i = 0; i < additions[n]; i++, depth--)
			ops->add(ops, --left == 0 ? sum : stack[depth - 2], stack[depth - 2], stack[depth - 1],
				count);
	}
}

static void end_group(struct ddp_group *groups, const struct ddp_group *top)
{
	if (top->leaves)
		groups[top->first].end = top->first + top->leaves;
}

/* Finds the largest subtrees that the ops can add at once. Plays the additions with a stack of
 * subtrees in the place of the pieces that are on it; one of no leaves has become too large. */
static void find_groups(struct ddp_group *groups, int pieces)
{
	for (int n = 0, depth = 0; n < pieces; n++) {
		groups[depth].first = n;
		groups[depth++].leaves = 1;
		for (int i = 0; i < groups[n].additions; i++, depth--) {
			struct ddp_group *left = &groups[depth - 2], *right = &groups[depth - 1];
			int leaves = left->leaves + right->leaves;

			if (left->leaves && right->leaves && leaves <= OPS_TREE_REDUCE_MAX) {
				left->leaves = leaves;
				continue;
			}
			end_group(groups, left);
			end_group(groups, right);
			left->leaves = 0;
		}
	}
}

/* Adds each group of pieces into its first one. What is left to be added then takes the place of
 * the pieces; returns their number. */
static int add_groups(struct ops *ops, float **pieces, struct ddp_group *groups, int count,
	size_t elements)
{
	int additions[OPS_TREE_REDUCE_MAX], left = 0;

	for (int first = 0, end; first < count; first = end) {
		int later = 1;

		end = groups[first].end;
		for (int n = first; n < end; n++) {
			additions[n - first] = groups[n].additions;
			later += additions[n - first] - 1;
		}
		additions[end - first - 1] -= later;
		if (end - first > 1)
			ops->tree_reduce(ops, pieces[first], pieces + first, additions, end - first, elements);
		pieces[left] = pieces[first];
		groups[left++].additions = later;
	}
	return left;
}

void ddp_add_tree(struct ops *ops, float **pieces, const int *additions, struct ddp_group *groups,
	int count, float *sum, size_t elements)
{
	int last[OPS_TREE_REDUCE_MAX];

	if (count <= OPS_TREE_REDUCE_MAX) {
		ops->tree_reduce(ops, sum, pieces, additions, count, elements);
		return;
	}
	for (int n = 0; n < count; n++)
		groups[n].additions = additions[n];
	while (count > OPS_TREE_REDUCE_MAX) {
		find_groups(groups, count);
		count = add_groups(ops, pieces, groups, count, elements);
	}
	for (int n = 0; n < count; n++)
		last[n] = groups[n].additions;
	ops->tree_reduce(ops, sum, pieces, last, count, elements);
}

/* Adds the pieces [first, end) of an exchange, of which one sum is made. */
static void add_pieces(struct ops *ops, const struct ddp_stage *stage, int first, int end,
	float *sum, size_t count)
{
	float **pieces = stage->piece_at + first;
	const int *additions = stage->additions + first;

	if (ops->tree_reduce)
		ddp_add_tree(ops, pieces, additions, stage->groups, end - first, sum, count);
	else
		add_in_turn(ops, pieces, additions, end - first, sum, count);
}

/* Where all pieces of an exchange lie, from element `at` on. */
static void find_pieces(struct ddp *ddp, struct ddp_stage *stage, const struct ddp_bucket *bucket,
	size_t at)
{
	for (int part = 0; part < stage->parts; part++)
		for (int number = stage->piece_start[part]; number < stage->piece_start[part + 1]; number++)
			stage->piece_at[number] = ddp_piece_at(ddp, stage, bucket, part, number, at);
}

int ddp_add_on_node(void *arg, size_t first_byte, size_t bytes, struct err *err)
{
	const struct ddp_job *job = arg;
	struct ddp *ddp = job->ddp;
	struct ddp_stage *stage = &ddp->on_node;
	size_t ignored,
		at = ddp_carried(ddp, job->bucket, ddp->plan.rank, &ignored) + first_byte / sizeof(float);

	limit_threads();
	find_pieces(ddp, stage, job->bucket, at);
	for (int i = 0; i < stage->sums; i++) {
		int first = stage->sum_start[i], end = stage->sum_start[i + 1];

		if (end > first + 1)
			add_pieces(ddp->ops, stage, first, end, stage->piece_at[first], bytes / sizeof(float));
	}
	return 0;
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
	struct ddp_stage *stage = &ddp->between;
	size_t ignored,
		count = bytes / sizeof(float),
		at = ddp_owned(ddp, job->bucket, ddp->plan.rank, &ignored) + first_byte / sizeof(float);

	limit_threads();
	find_pieces(ddp, stage, job->bucket, at);
	add_pieces(ddp->ops, stage, 0, stage->piece_start[stage->parts], ddp->arenas[0] + at, count);
	if (ddp_bucket_is_of_rows(ddp->table, job->bucket)) {
		ddp_join_split(ddp, at, at + count);
		sum_blocks(job, at + count);
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
