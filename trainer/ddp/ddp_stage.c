/* SPDX-License-Identifier: Apache-2.0 */
/* The exchanges of a reduction as they are prepared: whose pieces come, what is added, and the
 * memory that receives them. */
#include <stdlib.h>

#include "trainer/ddp/ddp_private.h"

size_t ddp_owned(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, size_t *count)
{
	return ddp_segment(bucket, ddp->plan.world, ddp->nodes.position[rank], count);
}

size_t ddp_carried(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, size_t *count)
{
	int first, end;
	size_t last_count;

	ddp_nodes_carried(&ddp->nodes, rank, &first, &end);
	size_t begin = ddp_segment(bucket, ddp->plan.world, first, count),
		   last = ddp_segment(bucket, ddp->plan.world, end - 1, &last_count);
	*count = last + last_count - begin;
	return begin;
}

bool ddp_shares_node(const struct ddp *ddp)
{
	return ddp->on_node.parts > 1;
}

bool ddp_has_nodes(const struct ddp *ddp)
{
	return ddp->nodes.count < ddp->plan.world;
}

const struct ddp_stage *ddp_first_stage(const struct ddp *ddp)
{
	return ddp_has_nodes(ddp) ? &ddp->on_node : &ddp->between;
}

bool ddp_is_early(const struct ddp_stage *stage, int part, int number)
{
	return stage->after && number + 1 < stage->piece_start[part + 1];
}

/* What this rank gets of a bucket. */
static size_t range_of(const struct ddp *ddp, const struct ddp_stage *stage,
	const struct ddp_bucket *bucket, size_t *count)
{
	return stage == &ddp->on_node ? ddp_carried(ddp, bucket, ddp->plan.rank, count)
								  : ddp_owned(ddp, bucket, ddp->plan.rank, count);
}

/* Where one of this rank's node's pieces lies: where the first of the ranks' pieces does to which
 * the others are added. */
static float *node_piece_at(const struct ddp *ddp, const struct ddp_bucket *bucket, int piece,
	size_t at)
{
	const struct ddp_stage *stage = &ddp->on_node;
	int number = stage->sum_start[piece], part = 0;

	while (stage->piece_start[part + 1] <= number)
		part++;
	return ddp_piece_at(ddp, stage, bucket, part, number, at);
}

float *ddp_piece_at(const struct ddp *ddp, const struct ddp_stage *stage,
	const struct ddp_bucket *bucket, int part, int number, size_t at)
{
	int bucket_number = (int)(bucket - ddp->buckets), own = number - stage->piece_start[part];
	size_t ignored, within = at - range_of(ddp, stage, bucket, &ignored);

	if (part == stage->self)
		return stage->after ? ddp->arenas[ddp->plan.piece_arena[own]] + at
							: node_piece_at(ddp, bucket, own, at);
	if (ddp_is_early(stage, part, number))
		return ddp->early + (size_t)stage->place[number] * ddp->share
			+ ddp->share_start[bucket_number] + within;
	int half = bucket_number % stage->halves;
	return stage->staging + (size_t)(half * stage->staged + stage->place[number]) * stage->most
		+ within;
}

/* ---- preparation ---- */

/* The parts are groups of ranks: [begin[0], begin[1]) and so on. */
static int number_pieces(struct ddp *ddp, struct ddp_stage *stage, const int *begin)
{
	const struct ddp_plan *plan = &ddp->plan;
	struct tree_node ignored[TREE_PIECES_MAX];

	stage->piece_start = calloc((size_t)stage->parts + 1, sizeof *stage->piece_start);
	for (int part = 0; stage->piece_start && part < stage->parts; part++)
		stage->piece_start[part + 1] = stage->piece_start[part]
			+ tree_group_pieces(plan->slots, plan->world, begin[part], begin[part + 1], ignored);
	if (!stage->piece_start)
		return -1;
	size_t pieces = (size_t)stage->piece_start[stage->parts];
	stage->additions = calloc(pieces, sizeof *stage->additions);
	stage->sum_start = calloc(pieces + 1, sizeof *stage->sum_start);
	stage->place = calloc(pieces, sizeof *stage->place);
	stage->piece_at = calloc(pieces, sizeof *stage->piece_at);
	stage->groups = calloc(pieces, sizeof *stage->groups);
	if (!stage->additions || !stage->sum_start || !stage->place || !stage->piece_at
		|| !stage->groups)
		return -1;
	tree_group_additions(plan->slots, plan->world, begin, stage->parts, stage->additions,
		(int)pieces);
	return 0;
}

/* Plays the additions: what is left on the stack is a sum, and begins with its first piece. */
static void find_sums(struct ddp_stage *stage)
{
	int pieces = stage->piece_start[stage->parts];

	for (int number = 0; number < pieces; number++) {
		stage->sum_start[stage->sums++] = number;
		stage->sums -= stage->additions[number];
	}
	stage->sum_start[stage->sums] = pieces;
}

static void place_pieces(struct ddp *ddp, struct ddp_stage *stage)
{
	size_t count;

	for (int part = 0; part < stage->parts; part++)
		for (int number = stage->piece_start[part];
			 part != stage->self && number < stage->piece_start[part + 1]; number++)
			stage->place[number] =
				ddp_is_early(stage, part, number) ? ddp->early_pieces++ : stage->staged++;
	for (int i = 0; i < ddp->bucket_count; i++) {
		range_of(ddp, stage, &ddp->buckets[i], &count);
		stage->most = count > stage->most ? count : stage->most;
		if (stage != ddp_first_stage(ddp))
			continue;
		ddp->share_start[i] = ddp->share;
		ddp->share += count;
	}
}

/* `after`: as in struct ddp_stage. */
static int prepare_stage(struct ddp *ddp, struct ddp_stage *stage, const int *begin,
	const int *after)
{
	stage->after = after;
	if (number_pieces(ddp, stage, begin) < 0)
		return -1;
	find_sums(stage);
	place_pieces(ddp, stage);
	return 0;
}

static int prepare_on_node(struct ddp *ddp)
{
	const struct ddp_nodes *nodes = &ddp->nodes;
	int node = nodes->node_of[ddp->plan.rank], first = nodes->begin[node],
		ranks = ddp_nodes_size(nodes, node);
	int *begin = calloc((size_t)ranks + 1, sizeof *begin);

	for (int i = 0; begin && i <= ranks; i++)
		begin[i] = first + i;
	ddp->on_node.parts = ranks;
	ddp->on_node.self = ddp->plan.rank - first;
	ddp->on_node.halves = 2;
	int rc = begin ? prepare_stage(ddp, &ddp->on_node, begin,
				 ddp->plan.piece_after + ddp->plan.piece_start[first])
				   : -1;
	free(begin);
	return rc;
}

static int prepare_between(struct ddp *ddp)
{
	ddp->between.parts = ddp->nodes.count;
	ddp->between.self = ddp->nodes.node_of[ddp->plan.rank];
	ddp->between.halves = 1;
	return prepare_stage(ddp, &ddp->between, ddp->nodes.begin,
		ddp_has_nodes(ddp) ? NULL : ddp->plan.piece_after);
}

/* Allocates memory that receives other ranks' pieces; none where there are none. */
static int alloc_pieces(struct ddp *ddp, float **pieces, size_t elements, const char *which,
	const char *remedy, struct err *err)
{
	size_t bytes = elements * sizeof **pieces;

	if (bytes == 0)
		return 0;
	*pieces = ddp->device->alloc(ddp->device, bytes);
	if (*pieces)
		return 0;
	return device_check(ddp->device, err) < 0
		? -1
		: err_set(err,
			"ddp: couldn't allocate %.1f MB to receive %spieces of other ranks: out of memory%s",
			(double)bytes * 1e-6, which, remedy);
}

static size_t staged_elements(const struct ddp_stage *stage)
{
	return (size_t)(stage->halves * stage->staged) * stage->most;
}

int ddp_stages_prepare(struct ddp *ddp, struct err *err)
{
	ddp->share_start = calloc((size_t)ddp->bucket_count, sizeof *ddp->share_start);
	if (!ddp->share_start || (ddp_has_nodes(ddp) && prepare_on_node(ddp) < 0)
		|| prepare_between(ddp) < 0)
		return err_set(err, "ddp: couldn't prepare the exchanges: out of memory");
	struct ddp_stage *stages[] = { &ddp->on_node, &ddp->between };
	for (int i = 0; i < 2; i++)
		if (alloc_pieces(ddp, &stages[i]->staging, staged_elements(stages[i]), "", "", err) < 0)
			return -1;
	return alloc_pieces(ddp, &ddp->early, (size_t)ddp->early_pieces * ddp->share, "early ",
		"; a number of ranks that divides --slots needs none", err);
}

static void clear_stage(struct ddp *ddp, struct ddp_stage *stage)
{
	if (stage->staging)
		ddp->device->release(ddp->device, stage->staging);
	free(stage->piece_start);
	free(stage->additions);
	free(stage->sum_start);
	free(stage->place);
	free(stage->piece_at);
	free(stage->groups);
}

void ddp_stages_clear(struct ddp *ddp)
{
	clear_stage(ddp, &ddp->on_node);
	clear_stage(ddp, &ddp->between);
	if (ddp->early)
		ddp->device->release(ddp->device, ddp->early);
	free(ddp->share_start);
}

size_t ddp_staging_bytes(const struct ddp *ddp)
{
	return (staged_elements(&ddp->on_node) + staged_elements(&ddp->between)
			   + (size_t)ddp->early_pieces * ddp->share)
		* sizeof(float);
}
