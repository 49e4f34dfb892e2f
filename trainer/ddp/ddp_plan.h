/* SPDX-License-Identifier: Apache-2.0 */
/* What data parallelism plans once, before the first step: the arenas of a rank's slots, the
 * additions between them, and the buckets. */
#ifndef MUSTER_DDP_PLAN_H
#define MUSTER_DDP_PLAN_H

#include <stdbool.h>

#include "common/err.h"
#include "order/tree.h"
#include "trainer/model/tensors.h"

#define DDP_FIRST_BUCKET \
	((size_t)1 << 20) /* bytes of bucket 0: small, so that the first one travels early */

/* Arena `right` is added to arena `left`, and is free again. */
struct ddp_merge {
	int left, right;
};

/* The binary counter over a rank's slots, played once in advance. Arena 0 ends up with the leftmost
 * piece, and with the result. */
struct ddp_plan {
	int slots, world, rank;
	int first, count;            /* this rank's slots */
	int arenas;                  /* gradient arenas that the counter needs */
	int *arena_of;               /* [count] the arena in which slot first + i is trained */
	struct ddp_merge *additions; /* in order */
	int *merge_end; /* [count] end of the additions after slot first + i (ddp_plan_merges) */
	int pieces;     /* number of this rank's pieces */
	int piece_arena[TREE_PIECES_MAX];
	int *piece_start; /* [world + 1] number of a rank's first piece among all */
	int *piece_after; /* [all pieces] slots of its rank that have ended when it is complete */
};

/* `one_piece` adds all of a rank's pieces up, against the tree (for --reduction native). -1 with
 * EXIT_USAGE when there are more ranks than slots. Free it with ddp_plan_clear, also after an
 * error. */
int ddp_plan_make(struct ddp_plan *plan, int slots, int world, int rank, bool one_piece,
	struct err *err);
void ddp_plan_clear(struct ddp_plan *plan);

/* Where the additions after a slot, the rank's slot number `i`, begin. */
static inline int ddp_plan_merges(const struct ddp_plan *plan, int i)
{
	return i > 0 ? plan->merge_end[i - 1] : 0;
}

/* Whether a piece of `rank`, by its number among all, is complete before that rank's last slot: all
 * but the rank's last piece are. */
static inline bool ddp_plan_is_early(const struct ddp_plan *plan, int rank, int number)
{
	return number + 1 < plan->piece_start[rank + 1];
}

/* A run of the arena. It is ready when the gradients of layers up to `layer` are. */
struct ddp_bucket {
	size_t first, count; /* elements */
	int layer;
	const size_t *cuts; /* [world + 1] where the segments begin; NULL: even ones */
};

/* The default of --bucket-mb: a sixteenth of the gradients, so that little has to wait though it
 * could have travelled already, and at most 25, since larger buckets gain nothing; but at least a
 * quarter of a MB for each rank, since each transfer between two ranks has a fixed cost. That alone
 * makes no bucket larger than both 25 and a quarter of the gradients. */
int ddp_bucket_mb(const struct tensor_table *table, int world);

/* Cuts an arena of gradients into buckets, first to last, but the head's part of a split embedding
 * before all others. Bucket 0 has at most 1 MiB, the others at most `bytes`. A cut in the second
 * half of a bucket moves back to the end of a layer, if there is one, so that the bucket need not
 * wait for the next layer. malloc'ed; NULL when out of memory. */
struct ddp_bucket *ddp_buckets_make(const struct tensor_table *table, size_t bytes, int *count);

/* Moves the cuts between buckets, and those between the segments of `world` ranks, to the
 * beginnings of the norm's blocks, so that each block belongs to one rank. A bucket may become
 * longer by a block. The head's part of a split embedding is cut as the embedding is, so that the
 * rank that has one of the two sums has the other. Replaces `buckets`. Returns the segments' cuts,
 * malloc'ed, which the buckets then point into; NULL when out of memory. */
size_t *ddp_buckets_align(const struct tensor_table *table, struct ddp_bucket **buckets, int *count,
	int world);

/* Whether a bucket belongs to the rows, and not to the head's part of a split embedding, which is
 * no weight. */
static inline bool ddp_bucket_is_of_rows(const struct tensor_table *table,
	const struct ddp_bucket *bucket)
{
	return bucket->first < table->elements;
}

/* Returns the first element of the segment at `position` of a bucket that is cut into `world`, and
 * its length in *count; the same on all ranks (whose segment it is: ddp_nodes.h). */
size_t ddp_segment(const struct ddp_bucket *bucket, int world, int position, size_t *count);

#endif
