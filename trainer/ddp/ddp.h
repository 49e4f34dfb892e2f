/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism: the gradients of all slots are summed over one fixed tree, bucket by bucket
 * while the backward pass goes on, so that the result has the same bits at every world size. */
#ifndef MUSTER_DDP_H
#define MUSTER_DDP_H

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"
#include "trainer/ops/ops.h"

struct ddp;

/* How much of a step's communication is done (--comm): all; none of gradients and weights, so that
 * each rank goes on with its own sums; or all, by a caller that computes nothing. The latter two
 * are for measuring. */
enum ddp_comm { DDP_COMM_REAL, DDP_COMM_NONE, DDP_COMM_REPLAY };

struct ddp_config {
	int slots;           /* S; the same at every world size */
	size_t bucket_bytes; /* limit of a bucket (--bucket-mb); the first has at most 1 MiB */
	int native; /* 1: the ranks' sums go through the communicator's all-reduce (--reduction native);
				   0: canonical */
	int bf16;   /* 1: with native, gradients travel in bf16 */
	int zero; /* 1: with canonical, the reduced gradients stay with the ranks that own them (--zero
				 1) */
	enum ddp_comm comm; /* the same on all ranks */
	int node; /* number of this rank's node. Where nodes have several ranks, gradients are added on
				 each node before they leave it */
	const int *nodes; /* [world] the same of all ranks, as ddp_agree told them, borrowed; NULL:
						 ddp_create calls ddp_agree itself, and so is collective */
	int late; /* 1: early pieces wait for the last slot, too; only for bench/hiding.sh, which
				 measures what sending them early hides */
};

/* What every rank contributes to the one control all-gather of a step. */
struct ddp_control {
	uint64_t step;
	uint64_t sample_hash; /* of the sample indices that this rank read in this step; 0: none, or not
							 told */
	uint64_t weights_hash; /* of the weights before this step; 0: not told; must be told by all
							  ranks or by none */
	double waited; /* seconds that this rank waited in some earlier steps, the same steps on all
					  ranks */
	int32_t stop;  /* the signal that asked for a stop here; 0 for none */
	int32_t save;  /* whether to save the state after this step; only rank 0's counts */
	int32_t fault; /* exit status of a rank that can't go on (because of its data, say); 0 for none;
					  its gradients are void */
};

#define DDP_NAMES 400 /* bytes for a list of ranks */

/* How long a rank waited. */
struct ddp_waited {
	double seconds;
	int rank;
};

/* Result of a step, equal on every rank. */
struct ddp_result {
	double loss;   /* sum of the slots' losses in slot order ÷ valid tokens */
	double norm;   /* L2 norm of the reduced gradients */
	int64_t valid; /* valid tokens in the global batch */
	int stop;      /* the highest of the ranks' stop signals; 0 for none */
	int save;      /* rank 0's */
	int fault; /* the lowest faulty rank's exit status; 0 for none; else only stop and fault_rank
				  hold, too */
	int fault_rank;               /* that rank; -1 for none */
	uint64_t sample_hash;         /* sum of all ranks', modulo 2^64 */
	char same_samples[DDP_NAMES]; /* "rank 1 on n1, rank 3 on n2": ranks that read the same samples
									 as another; "" for none */
	char drifted[DDP_NAMES];      /* in the same form: ranks whose weights differ from those of most
									 ranks; "" when all are equal */
	int drift_here;               /* 1: this rank is one of them */
	int nonfinite;  /* number of the first tensor whose gradient is not finite; -1 for none */
	double exposed; /* seconds that this rank waited for communication since ddp_begin */
	struct ddp_waited waited_most, waited_least; /* of equal ones the lowest rank */
};

/* What this number of ranks costs, compared with one that divides the slots into one piece a rank.
 * The same on every rank. */
struct ddp_cost {
	int most, least;   /* slots of a rank */
	double uneven;     /* how much longer the ranks with most slots compute than with an even share:
						  0.125 for 3 of 8 slots on 3 ranks */
	size_t sent, ring; /* bytes sent in a step: by the rank that sends most, and by the same with
						  one piece a rank */
};

/* Collective: checks that all ranks have the same options and tensors (ERR_SHARED with EXIT_USAGE
 * where they have not), and learns their nodes into nodes[world]. */
int ddp_agree(struct comm *comm, const struct tensor_table *table, const struct ddp_config *config,
	int *nodes, struct err *err);

/* Creates the engine, and logs the memory that the slots' arenas need. NULL with EXIT_USAGE when
 * the world size does not fit the slots (the message says what fits). Borrows comm, ops and
 * table. */
struct ddp *ddp_create(struct comm *comm, struct ops *ops, const struct tensor_table *table,
	const struct ddp_config *config, struct err *err);
/* Call it before comm_close; with an unfinished step it aborts the communicator. */
void ddp_destroy(struct ddp *ddp);

/* [world] the ranks in the order of their slots: node by node. Lives as long as the engine. */
const int *ddp_order(const struct ddp *ddp);

/* This rank's slots. */
int ddp_first_slot(const struct ddp *ddp);
int ddp_slot_count(const struct ddp *ddp);

/* One step: ddp_begin; for each own slot in order: g = ddp_slot_grads; train its microbatches into
 * g and the losses into ddp_slot_loss, with ddp_ready as the model's ready callback for the slot's
 * last microbatch; ddp_slot_end with the number of its valid targets; after the last slot
 * ddp_finish. */
void ddp_begin(struct ddp *ddp, uint64_t step);
float *ddp_slot_grads(struct ddp *ddp, int slot);
double *ddp_slot_loss(struct ddp *ddp, int slot); /* in the ops' memory */
void ddp_ready(void *ddp, int layer);
void ddp_slot_end(struct ddp *ddp, int64_t valid);
/* Waits for the last bucket and for the device, which is the one wait of a step; then all-gathers
 * control, block sums and slot losses, and folds them in a fixed order. */
int ddp_finish(struct ddp *ddp, const struct ddp_control *mine, struct ddp_result *result,
	struct err *err);

/* The reduced gradients, valid from ddp_finish to the next ddp_begin; with `zero` only this rank's
 * own elements. */
const float *ddp_grads(const struct ddp *ddp);

/* With `zero`: which rank owns which elements, sorted by rank and then by place; each element of
 * the rows occurs once. NULL without. ddp_own: this rank's. Borrowed. */
const struct zero_shard *ddp_shards(const struct ddp *ddp, size_t *count);
const struct zero_shard *ddp_own(const struct ddp *ddp, size_t *count);
/* With `zero`, collective, after the update: starts the all-gather of weights, into place, those
 * first that a forward pass needs first. Rows that are no parameters stay the caller's. Does
 * nothing without `zero`. */
void ddp_allgather_weights(struct ddp *ddp, float *arena);
/* The model's model_weights_wait, with the ddp as its argument: waits until a layer's weights have
 * come. ddp_finish reports a failure, and adds the seconds to `exposed`; until then what is
 * computed is worthless. */
void ddp_wait_weights(void *ddp, int layer);
/* Waits until all weights have come, for readers other than a pass. Adds the seconds to
 * *exposed. */
int ddp_whole(struct ddp *ddp, double *exposed, struct err *err);

size_t ddp_memory(const struct ddp *ddp); /* bytes of its arenas and receive buffers */
struct ddp_cost ddp_cost(const struct ddp *ddp);
int ddp_buckets(const struct ddp *ddp);

#endif
