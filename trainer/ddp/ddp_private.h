/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct ddp, shared by the files of this folder. */
#ifndef MUSTER_DDP_PRIVATE_H
#define MUSTER_DDP_PRIVATE_H

#include "trainer/ddp/ddp.h"
#include "trainer/ddp/ddp_nodes.h"
#include "trainer/ddp/ddp_plan.h"

/* What the communicator's thread gets with each bucket. */
struct ddp_job {
	struct ddp *ddp;
	const struct ddp_bucket *bucket;
	const struct ddp_blocks *blocks; /* of the norm, in this rank's segment; NULL: they are summed
										once all buckets are reduced */
	double *sums;                    /* of these blocks, among the figures */
	size_t next;                     /* block to sum next */
	comm_ticket reduced;             /* its sums have come to the ranks that carry them */
};

/* Blocks of the norm that a rank sums. */
struct ddp_blocks {
	int rank;
	size_t begin, end;
};

/* A subtree of pieces that are added at once. */
struct ddp_group {
	int first, leaves; /* of a subtree on the stack */
	int end;           /* of the group that begins with this piece */
	int additions;     /* after this piece */
};

/* An exchange among parts of the world, in which this rank gets the others' pieces of some elements
 * of each bucket and adds all: the ranks of its node, of what it carries; then the nodes, of its
 * own segment. Pieces are numbered from left to right over all parts. */
struct ddp_stage {
	int parts, self;  /* the part that is this rank or has it */
	int *piece_start; /* [parts + 1] a part's first piece */
	const int *after; /* [pieces] slots of its rank that have ended when it is complete; NULL: the
						 parts' pieces are those that the exchange before has added */
	int *additions;   /* [pieces] after each piece (tree_group_additions) */
	int *sum_start;   /* [sums + 1] the first of the pieces that are added to each sum */
	int sums;         /* 1 where all parts of the world take part */
	int *place;       /* [pieces] an index: of another part's early piece in `early`, of another
						 piece of it in `staging` */
	float **piece_at; /* [pieces] where each piece lies while a run is summed */
	struct ddp_group *groups; /* [pieces] scratch of ddp_add_tree */
	int staged, halves; /* with two halves a bucket's pieces may come while those of the one before
						   are still used */
	size_t most;        /* elements of a bucket */
	float *staging;     /* [halves][staged][most] */
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
	struct ddp_nodes nodes;
	struct ddp_stage on_node, between; /* the first has one part where nobody shares a node */
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
	float **arenas; /* [plan.arenas]; the reduced gradients are in arena 0 */
	float *early;   /* [early_pieces][share] the others' early pieces of all buckets */
	int early_pieces;
	size_t share;        /* elements that this rank gets in the first exchange of all buckets */
	size_t *share_start; /* [bucket_count] where each bucket's begin in a share */
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
/* Queues a part of a bucket's reduction, as "WHAT 3 of step 17". */
comm_ticket ddp_queue(struct ddp *ddp, const char *what, const struct ddp_bucket *bucket,
	const struct comm_reduction *reduction);

/* Who owns and who carries which elements of a bucket: the first, and their number. */
size_t ddp_owned(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, size_t *count);
size_t ddp_carried(const struct ddp *ddp, const struct ddp_bucket *bucket, int rank, size_t *count);
/* Whether this rank, or any other, shares its node. */
bool ddp_shares_node(const struct ddp *ddp);
bool ddp_has_nodes(const struct ddp *ddp);
/* The exchange in which the pieces of the ranks themselves travel: the first one. */
const struct ddp_stage *ddp_first_stage(const struct ddp *ddp);

/* Exchanges, once prepared (ddp_stage.c). */
int ddp_stages_prepare(struct ddp *ddp, struct err *err);
void ddp_stages_clear(struct ddp *ddp);
/* Bytes of the buffers that receive other ranks' pieces. */
size_t ddp_staging_bytes(const struct ddp *ddp);
/* Whether a piece of a part is complete before the last slot of its rank. */
bool ddp_is_early(const struct ddp_stage *stage, int part, int number);
/* Where a part's piece of element `at` of a bucket lies, among those that this rank gets or, of its
 * own part, has. */
float *ddp_piece_at(const struct ddp *ddp, const struct ddp_stage *stage,
	const struct ddp_bucket *bucket, int part, int number, size_t at);

/* The transfers of one exchange (ddp_transfers.c), in ddp->transfers; each returns the end of those
 * that it has added at `begin`. `ended`: of the pieces that are complete with exactly so many
 * slots, or the last ones. */
#define LAST_PIECES 0 /* in the place of a number of slots */
int ddp_add_pieces_on_node(struct ddp *ddp, const struct ddp_bucket *bucket, int ended);
int ddp_add_pieces_between(struct ddp *ddp, const struct ddp_bucket *bucket, int ended);
/* From the owners of an arena's elements to those who carry them, and on within the nodes. With
 * `parameters` only those of the rows. */
int ddp_add_owned(struct ddp *ddp, const struct ddp_bucket *bucket, float *arena, bool parameters,
	int begin);
int ddp_add_carried(struct ddp *ddp, const struct ddp_bucket *bucket, float *arena,
	bool parameters);

/* The additions (ddp_sum.c): those after the rank's slot number `slot`, of elements [first, first +
 * count). */
void ddp_merge_slot(struct ddp *ddp, int slot, size_t first, size_t count);
/* On the communicator's thread, with a job. Those after the last slot, of the job's bucket: */
void ddp_merge_bucket(void *job);
int ddp_merge_alone(void *job, struct err *err);
/* all pieces of the ranks of this node, of these bytes that this rank carries: each of the node's
 * pieces ends up where the first of its own lay; */
int ddp_add_on_node(void *job, size_t first_byte, size_t bytes, struct err *err);
/* all pieces of these bytes of this rank's segment, and the squares of the sum: */
int ddp_add_run(void *job, size_t first_byte, size_t bytes, struct err *err);
/* Adds `count` pieces, with additions[n] additions after piece n, by as few calls of the ops'
 * tree_reduce as take OPS_TREE_REDUCE_MAX pieces at most. Changes the order of `pieces`, and what
 * they hold. `groups`: [count] scratch. */
void ddp_add_tree(struct ops *ops, float **pieces, const int *additions, struct ddp_group *groups,
	int count, float *sum, size_t elements);
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
