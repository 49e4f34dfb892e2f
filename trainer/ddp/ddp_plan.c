/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the plan of a rank's arenas and buckets. It only calculates and sends nothing, so tests
 * can check it for any world size. */
#include "trainer/ddp/ddp_plan.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/ops/ops.h"

#define SEGMENT_ALIGN 64 /* elements */
#define BUCKETS 16       /* wanted number of buckets */
#define LARGEST_MB 25    /* upper limit of a bucket's MB, where the ranks need no larger one */
#define RANKS_MB 4       /* the lower limit is 1 MB for this many ranks */
#define FEWEST 4         /* buckets that this lower limit leaves, where they are that large */

/* The arenas in use while the counter is played. */
struct player {
	struct ddp_plan *plan;
	bool *taken;
	int additions;
};

static int take_arena(struct player *player)
{
	int arena = 0;

	while (player->taken[arena])
		arena++;
	player->taken[arena] = true;
	if (arena >= player->plan->arenas)
		player->plan->arenas = arena + 1;
	return arena;
}

static void merge(void *arg, int left, int right)
{
	struct player *player = arg;

	player->plan->additions[player->additions++] = (struct ddp_merge) { left, right };
	player->taken[right] = false;
}

static void play(struct ddp_plan *plan, bool *taken, bool one_piece)
{
	struct player player = { .plan = plan, .taken = taken };
	struct tree_counter counter = { .slots = plan->slots };

	for (int i = 0; i < plan->count; i++) {
		plan->arena_of[i] = take_arena(&player);
		tree_counter_push(&counter, (struct tree_node) { 0, plan->first + i }, plan->arena_of[i],
			merge, &player);
		plan->merge_end[i] = player.additions;
	}
	for (; one_piece && counter.count > 1; counter.count--)
		merge(&player, counter.tags[counter.count - 2], counter.tags[counter.count - 1]);
	plan->merge_end[plan->count - 1] = player.additions;
	plan->pieces = counter.count;
	memcpy(plan->piece_arena, counter.tags, sizeof plan->piece_arena);
}

static int number_pieces(struct ddp_plan *plan, bool one_piece)
{
	struct tree_node pieces[TREE_PIECES_MAX];
	int total = 0;

	for (int rank = 0; rank < plan->world; rank++) {
		plan->piece_start[rank] = total;
		total += one_piece ? 1 : tree_pieces(plan->slots, plan->world, rank, pieces);
	}
	plan->piece_start[plan->world] = total;
	plan->piece_after = calloc((size_t)total, sizeof *plan->piece_after);
	return plan->piece_after ? 0 : -1;
}

static void time_pieces(struct ddp_plan *plan, bool one_piece)
{
	struct tree_node pieces[TREE_PIECES_MAX];

	for (int rank = 0; rank < plan->world; rank++) {
		int slots, first = tree_rank_slots(plan->slots, plan->world, rank, &slots);
		int *after = plan->piece_after + plan->piece_start[rank];
		int count = one_piece ? 0 : tree_pieces(plan->slots, plan->world, rank, pieces);

		after[0] = slots;
		for (int i = 0; i < count; i++)
			after[i] = tree_node_end(pieces[i], plan->slots) - first;
	}
}

int ddp_plan_make(struct ddp_plan *plan, int slots, int world, int rank, bool one_piece,
	struct err *err)
{
	memset(plan, 0, sizeof *plan);
	if (slots < 1 || slots > TREE_SLOTS_MAX)
		return err_fail(err, EXIT_USAGE,
			"ddp: couldn't use --slots %d: it must be between 1 and %d", slots, TREE_SLOTS_MAX);
	if (world > slots)
		return err_fail(err, EXIT_USAGE,
			"ddp: couldn't split %d slots over %d ranks: some would have none; use at most %d "
			"ranks, or a new run with --slots %d or more",
			slots, world, slots, world);
	plan->slots = slots;
	plan->world = world;
	plan->rank = rank;
	plan->first = tree_rank_slots(slots, world, rank, &plan->count);
	size_t count = (size_t)plan->count;
	plan->arena_of = calloc(count, sizeof *plan->arena_of);
	plan->additions = calloc(count, sizeof *plan->additions);
	plan->merge_end = calloc(count, sizeof *plan->merge_end);
	plan->piece_start = calloc((size_t)world + 1, sizeof *plan->piece_start);
	bool *taken = calloc(count, sizeof *taken);
	int rc = -1;
	if (plan->arena_of && plan->additions && plan->merge_end && plan->piece_start && taken) {
		play(plan, taken, one_piece);
		rc = number_pieces(plan, one_piece);
	}
	if (rc == 0)
		time_pieces(plan, one_piece);
	free(taken);
	return rc == 0 ? 0 : err_set(err, "ddp: couldn't plan the slots: out of memory");
}

void ddp_plan_clear(struct ddp_plan *plan)
{
	free(plan->arena_of);
	free(plan->additions);
	free(plan->merge_end);
	free(plan->piece_start);
	free(plan->piece_after);
	memset(plan, 0, sizeof *plan);
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

int ddp_bucket_mb(const struct tensor_table *table, int world)
{
	size_t gradients = tensor_table_gradients(table) * sizeof(float);
	size_t for_overlap = smaller(gradients / BUCKETS >> 20, LARGEST_MB);
	size_t for_ranks = ((size_t)world + RANKS_MB - 1) / RANKS_MB;
	size_t most_for_ranks = larger(gradients / FEWEST >> 20, LARGEST_MB);

	return (int)larger(for_overlap, smaller(for_ranks, most_for_ranks));
}

/* Where the next bucket ends: at most `limit` elements after `first`, but at the end of a layer if
 * there is one in the bucket's second half. */
static size_t bucket_end(const struct tensor_table *table, size_t first, size_t limit)
{
	size_t end = first + limit;

	if (end >= table->elements)
		return table->elements;
	for (int i = table->count - 1; i > 0; i--) {
		const struct tensor *row = &table->rows[i];

		if (row->offset <= end && row->offset > first + limit / 2 && row->layer != row[-1].layer)
			return row->offset;
	}
	return end;
}

/* The layer that holds the element before `end`. */
static int layer_before(const struct tensor_table *table, size_t end)
{
	int i = table->count - 1;

	while (i > 0 && table->rows[i].offset >= end)
		i--;
	return table->rows[i].layer;
}

struct ddp_bucket *ddp_buckets_make(const struct tensor_table *table, size_t bytes, int *count)
{
	size_t limit = bytes / sizeof(float) / TENSOR_ALIGN * TENSOR_ALIGN;

	limit = limit > TENSOR_ALIGN ? limit : TENSOR_ALIGN;
	/* cuts at layers leave buckets at least half full */
	struct ddp_bucket *buckets =
		calloc(2 * (tensor_table_gradients(table) / limit) + 5, sizeof *buckets);
	if (!buckets)
		return NULL;
	size_t next = smaller(DDP_FIRST_BUCKET / sizeof(float), limit); /* limit of the next bucket */
	*count = 0;
	for (size_t first = table->elements, end; first < tensor_table_gradients(table);
		 first = end, next = limit) {
		end = smaller(first + next, tensor_table_gradients(table));
		buckets[(*count)++] = (struct ddp_bucket) { first, end - first, 0, NULL };
	}
	for (size_t first = 0, end; first < table->elements; first = end, next = limit) {
		end = bucket_end(table, first, next);
		buckets[(*count)++] =
			(struct ddp_bucket) { first, end - first, layer_before(table, end), NULL };
	}
	return buckets;
}

/* Returns where the norm's block with element `at` begins; *end is where the next one does. */
static size_t block_around(const struct tensor_table *table, size_t at, size_t *end)
{
	int i = table->count - 1;

	if (at >= table->elements)
		return *end = table->elements;
	while (i > 0 && table->rows[i].offset > at)
		i--;
	const struct tensor *row = &table->rows[i];
	size_t block = smaller((at - row->offset) / NORM_BLOCK, (row->count - 1) / NORM_BLOCK);
	bool last = (block + 1) * NORM_BLOCK >= row->count;

	*end = row->offset + (block + 1) * NORM_BLOCK;
	if (last) /* padding belongs to it */
		*end = i + 1 < table->count ? table->rows[i + 1].offset : table->elements;
	return row->offset + block * NORM_BLOCK;
}

static size_t nearest_block(const struct tensor_table *table, size_t at)
{
	size_t end, begin = block_around(table, at, &end);

	return at - begin <= end - at ? begin : end;
}

/* Consecutive buckets as they are made. */
struct cutter {
	const struct tensor_table *table;
	struct ddp_bucket *buckets;
	int count;
	size_t first; /* of the next bucket */
};

/* Ends a bucket at `end`, unless it would be empty. */
static void cut_at(struct cutter *cutter, size_t end)
{
	if (end <= cutter->first)
		return;
	cutter->buckets[cutter->count++] = (struct ddp_bucket) { cutter->first, end - cutter->first,
		layer_before(cutter->table, end), NULL };
	cutter->first = end;
}

/* The end of the elements that a split embedding takes among the rows, with the padding up to the
 * next row; 0 without. */
static size_t split_end(const struct tensor_table *table)
{
	for (int i = 0; i + 1 < table->count && table->split_count; i++)
		if (table->rows[i].offset == table->split_offset)
			return table->rows[i + 1].offset;
	return table->split_count ? table->elements : 0;
}

/* Cuts the buckets of rows at blocks, and at both ends of a split embedding. */
static void cut_rows(struct cutter *cutter, const struct ddp_bucket *buckets, int count)
{
	const struct tensor_table *table = cutter->table;
	const size_t from = table->split_offset, to = split_end(table);
	size_t ignored;

	for (int i = 0; i < count; i++) {
		if (!ddp_bucket_is_of_rows(table, &buckets[i]))
			continue;
		size_t end = block_around(table, buckets[i].first + buckets[i].count, &ignored);
		cut_at(cutter, smaller(from, end));
		cut_at(cutter, smaller(to, end));
		cut_at(cutter, end);
	}
}

/* Cuts a bucket of rows into segments, at the beginnings of blocks. `given`: [world] the elements
 * of the buckets before that went to lower ranks. What a rank got too much there it gets less here,
 * so that over all buckets no group of ranks sends much more than its share. */
static void cut_segments(const struct tensor_table *table, const struct ddp_bucket *bucket,
	int world, size_t *given, size_t *cuts)
{
	size_t end = bucket->first + bucket->count;

	cuts[0] = bucket->first;
	for (int rank = 1; rank < world; rank++) {
		size_t share = end * (size_t)rank / (size_t)world,
			   cut = larger(cuts[rank - 1], bucket->first + share - smaller(share, given[rank]));
		cuts[rank] = smaller(larger(nearest_block(table, cut), cuts[rank - 1]), end);
		given[rank] += cuts[rank] - bucket->first;
	}
	cuts[world] = end;
}

/* The head's counterpart of one of the embedding's buckets, with its cuts. */
static struct ddp_bucket mirror(const struct tensor_table *table, const struct ddp_bucket *bucket,
	int world, size_t *cuts)
{
	const size_t end = tensor_table_gradients(table);

	for (int rank = 0; rank <= world; rank++)
		cuts[rank] = smaller(bucket->cuts[rank] - table->split_offset + table->elements, end);
	return (struct ddp_bucket) { cuts[0], cuts[world] - cuts[0], 0, cuts };
}

size_t *ddp_buckets_align(const struct tensor_table *table, struct ddp_bucket **buckets, int *count,
	int world)
{
	/* Room for the rows' buckets with two more cuts, and as many of the head's before them; and for
	 * what ranks were given. */
	size_t room = 2 * ((size_t)*count + 2), stride = (size_t)world + 1,
		   *cuts = calloc((room + 1) * stride, sizeof *cuts);
	struct cutter cutter = { .table = table, .buckets = calloc(room, sizeof *cutter.buckets) };
	int heads = 0;

	if (!cuts || !cutter.buckets) {
		free(cuts);
		free(cutter.buckets);
		return NULL;
	}
	cut_rows(&cutter, *buckets, *count);
	for (int i = 0; i < cutter.count; i++)
		heads += cutter.buckets[i].first >= table->split_offset
			&& cutter.buckets[i].first < split_end(table);
	memmove(cutter.buckets + heads, cutter.buckets, (size_t)cutter.count * sizeof *cutter.buckets);
	*count = heads + cutter.count;
	for (int i = heads, head = 0; i < *count; i++) {
		struct ddp_bucket *bucket = &cutter.buckets[i];

		cut_segments(table, bucket, world, cuts + room * stride, cuts + (size_t)i * stride);
		bucket->cuts = cuts + (size_t)i * stride;
		if (bucket->first < table->split_offset || bucket->first >= split_end(table))
			continue;
		cutter.buckets[head] = mirror(table, bucket, world, cuts + (size_t)head * stride);
		head++;
	}
	free(*buckets);
	*buckets = cutter.buckets;
	return cuts;
}

size_t ddp_segment(const struct ddp_bucket *bucket, int world, int position, size_t *count)
{
	if (bucket->cuts) {
		*count = bucket->cuts[position + 1] - bucket->cuts[position];
		return bucket->cuts[position];
	}
	size_t each = (bucket->count + (size_t)world - 1) / (size_t)world;
	each = (each + SEGMENT_ALIGN - 1) / SEGMENT_ALIGN * SEGMENT_ALIGN;
	size_t begin = each * (size_t)position, end = begin + each;

	begin = begin < bucket->count ? begin : bucket->count;
	end = end < bucket->count ? end : bucket->count;
	*count = end - begin;
	return bucket->first + begin;
}
