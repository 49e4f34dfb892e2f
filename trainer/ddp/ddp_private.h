/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct ddp, shared by its files. */
#ifndef MUSTER_DDP_PRIVATE_H
#define MUSTER_DDP_PRIVATE_H

#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_plan.h"

/* What the communicator's thread is given with a bucket. */
struct ddp_job {
	struct ddp *ddp;
	const struct ddp_bucket *bucket;
	const struct ddp_blocks *blocks; /* of the norm, in this rank's segment; NULL: they are summed
										when all buckets are there */
	double *sums;                    /* of these, among the figures */
	size_t next;                     /* block that is to be summed */
};

/* Blocks of the norm that a rank sums. */
struct ddp_blocks {
	int rank;
	size_t begin, end;
};

struct ddp {
	struct comm *comm;
	struct ops *ops;
	const struct tensor_table *table;
	bool native, bf16, zero, late;
	bool segmented; /* each rank sums its segments of the buckets, and their blocks of the norm */
	bool alone;     /* DDP_COMM_NONE */
	struct ddp_plan plan;
	struct ddp_bucket *buckets;
	struct ddp_job *jobs; /* [bucket_count] */
	int bucket_count;
	size_t *cuts; /* the buckets'; NULL: native */
	int heads;    /* with cuts: the first buckets, of the head's part of a split embedding */
	struct zero_shard *shards; /* with zero */
	size_t shard_count;
	size_t *shards_of;       /* [world + 1] a rank's first one */
	comm_ticket *allgathers; /* [bucket_count] of the weights on their way, in the reverse order of
								the buckets */
	comm_ticket last_allgather, whole; /* the last of them; the last that was waited for */
	double waited;                     /* seconds, for them, in this step */
	struct ddp_cost cost;
	float **arenas;     /* [plan.arenas]; the reduced gradients are in arena 0 */
	float *staging;     /* [world - 1][segment_max] the others' last pieces of one segment */
	size_t segment_max; /* elements */
	float
		*early; /* [early_pieces][share] the others' early pieces of all of this rank's segments */
	int early_pieces;
	size_t share;        /* elements of this rank's segments of all buckets, */
	size_t *share_start; /* [bucket_count] and where each begins among them */
	int *early_place;    /* [all pieces] */
	float **piece_at;    /* [all pieces] where each lies while a segment is combined */
	int *additions; /* [all pieces] of each, where the ops combine all at once; NULL: one addition
					   after the other */
	struct comm_transfer *transfers; /* of one exchange */

	/* the step */
	uint64_t step;
	int ended;        /* slots of this step */
	int travelled;    /* early pieces of the step were launched as far as they are finished after so
						 many slots */
	int launched;     /* buckets of this step */
	comm_ticket last; /* of the latest bucket */
	bool settled;     /* it was waited for */

	/* the control all-gather: control, valid targets and losses of the slots, and block sums of
	 * each rank */
	size_t *block_start;     /* [table->count + 1] number of a tensor's first block */
	struct ddp_blocks *runs; /* [run_count] who sums which blocks, in their order */
	size_t run_count;
	size_t *cursors;              /* [world] while block sums are folded */
	uint64_t *hashes;             /* [world] while sample hashes are compared */
	size_t slots_max, blocks_max; /* of one rank */
	size_t message_bytes;
	char *own_message, *messages;
	int64_t *valid;  /* [slots_max] inside own_message */
	double *figures; /* [slots_max + blocks_max] losses, then blocks, where the ops have their
memory: inside own_message where that's the host's */
};

/* Queues the reduction of the next bucket (ddp_reduce.c). */
void ddp_launch(struct ddp *ddp);
/* Allocates what ddp_launch needs. */
int ddp_reduce_prepare(struct ddp *ddp, struct err *err);
void ddp_add_transfer(struct ddp *ddp, int *count, int peer, float *at, size_t elements,
	int receive);
/* Bytes to receive others' pieces into. */
size_t ddp_staging_bytes(const struct ddp *ddp);

/* Queues the exchange of all ranks' early pieces that are finished when so many slots of their
 * ranks have ended (ddp_early.c), as far as it was not queued before. Every rank does so at the end
 * of each slot but its last, and for the rest of all before its first bucket: so the order of all
 * exchanges is the same on all ranks. */
void ddp_early_launch(struct ddp *ddp, int ended);
/* Where an early piece of another rank is received, its part of a bucket. */
float *ddp_early_at(const struct ddp *ddp, int number, const struct ddp_bucket *bucket);
int ddp_early_prepare(struct ddp *ddp, struct err *err);
/* Bytes that one bucket makes a rank with so many pieces send. */
size_t ddp_bucket_traffic(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank,
	int pieces);

/* The one more addition of a split embedding, among elements [first, end): head first, as where it
 * is not split (ddp.c). */
void ddp_join_split(struct ddp *ddp, size_t first, size_t end);

/* Ownership with zero (ddp_zero.c). */
int ddp_zero_prepare(struct ddp *ddp, struct err *err);

/* The control all-gather (ddp_control.c): allocation; on the communicator's thread, the blocks of a
 * segment that end before an element, up to which it is summed; and its run, queued behind the last
 * bucket. */
int ddp_control_prepare(struct ddp *ddp, struct err *err);
void ddp_sum_blocks(struct ddp_job *job, size_t end);
int ddp_control_run(struct ddp *ddp, const struct ddp_control *mine, struct ddp_result *result,
	struct err *err);
/* Makes sure that all ranks run the same thing. */
int ddp_agree(struct ddp *ddp, const struct ddp_config *config, struct err *err);

#endif
