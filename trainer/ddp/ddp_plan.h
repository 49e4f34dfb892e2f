/* SPDX-License-Identifier: Apache-2.0 */
/* What data parallelism decides once: the arenas of a rank's slots, the additions between them, and
 * the buckets. */
#ifndef MUSTER_DDP_PLAN_H
#define MUSTER_DDP_PLAN_H

#include <stdbool.h>

#include "common/err.h"
#include "order/tree.h"
#include "trainer/model/tensors.h"

#define DDP_FIRST_BUCKET \
	((size_t)1 << 20) /* bytes of bucket 0: the first to travel should be ready early */

/* Arena `right` is added to arena `left` and is free again. */
struct ddp_merge {
	int left, right;
};

/* The binary counter over a rank's slots, played once. Arena 0 ends up with the leftmost piece, and
 * with the result. */
struct ddp_plan {
	int slots, world, rank;
	int first, count;            /* this rank's slots */
	int arenas;                  /* gradient arenas that the counter needs */
	int *arena_of;               /* [count] where slot first + i is trained */
	struct ddp_merge *additions; /* in order */
	int *merge_end; /* [count] merges after slot first + i end here; they begin at the previous
					   one's end */
	int pieces;     /* of this rank: */
	int piece_arena[TREE_PIECES_MAX];
	int *piece_start; /* [world + 1] number of a rank's first piece among all */
	int *piece_after; /* [all pieces] how many slots of its rank have ended when it is finished */
};

/* `one_piece` adds a rank's pieces up, whatever the tree says (for --reduction native). EXIT_USAGE
 * when there are more ranks than slots. Freed by ddp_plan_clear, also after an error. */
int ddp_plan_make(struct ddp_plan *plan, int slots, int world, int rank, bool one_piece,
	struct err *err);
void ddp_plan_clear(struct ddp_plan *plan);

/* Whether a piece of `rank`, by its number among all, is finished before that rank's last slot: all
 * but its last one are. */
static inline bool ddp_plan_is_early(const struct ddp_plan *plan, int rank, int number)
{
	return number + 1 < plan->piece_start[rank + 1];
}

/* A run of the arena, ready when the gradients of layers up to `layer` are. */
struct ddp_bucket {
	size_t first, count; /* elements */
	int layer;
	const size_t *cuts; /* [world + 1] where the ranks' segments begin; NULL: even ones */
};

/* What --bucket-mb is left to itself: a sixteenth of the gradients, so that little is waited for
 * that could have travelled, at most 25, from where on that gains nothing, and at least a quarter
 * for each rank, since what two ranks exchange of it has its price. */
int ddp_bucket_mb(const struct tensor_table *table, int world);

/* Cuts an arena of gradients, first to last, but the head's part of a split embedding before all:
 * bucket 0 has at most 1 MiB, the others at most `bytes`. A cut that falls into the second half of
 * a bucket moves back to the end of a layer, if there is one: so the bucket need not wait for the
 * next layer. malloc'ed; NULL when out of memory. */
struct ddp_bucket *ddp_buckets_make(const struct tensor_table *table, size_t bytes, int *count);

/* Moves the cuts between buckets, and those between the segments of `world` ranks, to the
 * beginnings of the norm's blocks, so that each block is one rank's. A bucket may become longer by
 * a block. The head's part of a split embedding is cut as the embedding is, so that the rank that
 * has one of the two sums has the other. `buckets` is replaced. Returns the segments' cuts,
 * malloc'ed, which the buckets then point into; NULL when out of memory. */
size_t *ddp_buckets_align(const struct tensor_table *table, struct ddp_bucket **buckets, int *count,
	int world);

/* Whether a bucket is of the rows, and not of the head's part of a split embedding, which is no
 * weight. */
static inline bool ddp_bucket_is_of_rows(const struct tensor_table *table,
	const struct ddp_bucket *bucket)
{
	return bucket->first < table->elements;
}

/* The part of a bucket that `rank` combines; the same on all ranks. */
size_t ddp_segment(const struct ddp_bucket *bucket, int world, int rank, size_t *count);

#endif
