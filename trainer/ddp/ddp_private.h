/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct ddp, shared by the files of this folder. */
#ifndef MUSTER_DDP_PRIVATE_H
#define MUSTER_DDP_PRIVATE_H

#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_plan.h"

/* What the communicator's thread gets with each bucket. */
struct ddp_job {
	struct ddp *ddp;
	const struct ddp_bucket *bucket;
	const struct ddp_blocks *blocks; /* of the norm, in this rank's segment; NULL: they are summed
										once all buckets are reduced */
	double *sums;                    /* of these blocks, among the figures */
	size_t next;                     /* block to sum next */
};

/* Blocks of the norm that a rank sums. */
struct ddp_blocks {
	int rank;
	size_t begin, end;
};

struct ddp {
	struct comm *comm;
	struct ops *ops;
	struct device *device; /* the ops' */
	const struct tensor_table *table;
	bool native, bf16, zero, late;
	bool segmented; /* each rank sums its segments of the buckets, and their blocks of the norm */
	bool alone;     /* DDP_COMM_NONE */
	struct ddp_plan plan;
	struct ddp_bucket *buckets;
	struct ddp_job *jobs; /* [bucket_count] */
	int bucket_count;
	size_t *cuts;              /* the segments'; NULL: native */
	int heads;                 /* number of buckets of a split embedding's head; they come first */
	struct zero_shard *shards; /* with zero */
	size_t shard_count;
	size_t *shards_of;       /* [world + 1] a rank's first shard */
	comm_ticket *allgathers; /* [bucket_count] all-gathers of weights, begun in the reverse order of
								the buckets */
	comm_ticket last_allgather, whole; /* the last one queued; the last one that was waited for */
	double waited; /* seconds of this step that all-gathers of weights were waited for */
	struct ddp_cost cost;
	float **arenas;     /* [plan.arenas]; the reduced gradients are in arena 0 */
	float *staging;     /* [world - 1][segment_max] the other ranks' last pieces of one segment */
	size_t segment_max; /* elements */
	float *early;       /* [early_pieces][share] the others' early pieces of this rank's segments */
	int early_pieces;
	size_t share;        /* elements of this rank's segments of all buckets */
	size_t *share_start; /* [bucket_count] where each bucket's segment begins in a share */
	int *early_place;    /* [all pieces] an early piece's index in `early` */
	float **piece_at;    /* [all pieces] where each piece lies while a segment is summed */
	int *additions;      /* [all pieces] after each piece (tree_additions) */
	struct comm_transfer *transfers; /* of one exchange */

	/* ---- the step ---- */
	uint64_t step;
	int ended;        /* slots that have ended */
	int travelled;    /* early pieces are queued that are complete after this many slots */
	int launched;     /* buckets that are queued */
	comm_ticket last; /* of the bucket queued last */
	bool settled;     /* `last` was waited for */

	/* ---- the control all-gather: each rank's control, valid targets and losses of its slots, and
	 * block sums ---- */
	size_t *block_start;     /* [table->count + 1] number of a tensor's first block */
	struct ddp_blocks *runs; /* [run_count] the rank of each run of blocks, in block order */
	size_t run_count;
	size_t *cursors;              /* [world] read positions while block sums are folded */
	uint64_t *hashes;             /* [world] sorted sample hashes */
	size_t slots_max, blocks_max; /* of the rank that has most */
	size_t message_bytes;
	char *own_message, *messages;
	int64_t *valid;  /* [slots_max] inside own_message */
	double *figures; /* [slots_max + blocks_max] losses, then block sums, in the ops' memory: inside
						own_message where that is the host's */
};

/* The step on the training's thread (ddp_step.c). Queues the buckets that are not queued yet. */
void ddp_launch_rest(struct ddp *ddp);
/* Appends to ddp->transfers. */
void ddp_add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements,
	int receive);

/* The additions (ddp_sum.c): those after the rank's slot number `slot`, of elements [first, first +
 * count). */
void ddp_merge_slot(struct ddp *ddp, int slot, size_t first, size_t count);
/* On the communicator's thread, with a job. Those after the last slot, of the job's bucket: */
void ddp_merge_bucket(void *job);
int ddp_merge_alone(void *job, struct err *err);
/* all pieces of these bytes of this rank's segment, and the squares of the sum: */
int ddp_add_run(void *job, size_t first_byte, size_t bytes, struct err *err);
/* Where a piece of `rank`, by its number among all, lies: this rank's own at offset `first` of an
 * arena; another's part of this rank's segment where it is received. */
float *ddp_piece_at(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, int number,
	size_t first);
/* Adds the two parts of a split embedding's gradient among elements [first, end): the head's first,
 * as where the embedding is not split. */
void ddp_join_split(struct ddp *ddp, size_t first, size_t end);
/* Sums the squares of all of this rank's blocks. */
void ddp_sum_all_blocks(struct ddp *ddp);

/* Ownership with zero (ddp_zero.c). */
int ddp_zero_prepare(struct ddp *ddp, struct err *err);
/* The control all-gather (ddp_control.c). Allocates. */
int ddp_control_prepare(struct ddp *ddp, struct err *err);

#endif
