/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism: the gradients of all slots, summed over one fixed tree, bucket by bucket while
 * the backward pass goes on. The result is bit-identical at every world size. */
#ifndef MUSTER_DDP_H
#define MUSTER_DDP_H

#include "trainer/comm/comm.h"
#include "trainer/model/model.h"
#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"
#include "trainer/ops/ops.h"

struct ddp;

/* What of a step is done (--comm): all of it; no exchange of gradients and weights, so that each
 * rank goes on with its own sums; or, by a caller that computes nothing, all exchanges. The latter
 * two are for measuring. */
enum ddp_comm { DDP_COMM_REAL, DDP_COMM_NONE, DDP_COMM_REPLAY };

struct ddp_config {
	int slots;           /* S; the same at every world size */
	size_t bucket_bytes; /* 25 MB; the first bucket is at most 1 MiB */
	int native; /* 1: the sum over ranks is the library's all-reduce (--reduction native), else
				   canonical */
	int bf16;   /* 1: with native, gradients travel in bf16 */
	int zero; /* 1: with canonical, the reduced gradients stay with the ranks that own them (--zero
				 1) */
	enum ddp_comm comm; /* the same on all ranks */
	int late; /* 1: early pieces wait for the last slot, too. Only for bench/hiding.sh, which
				 measures what they hide */
};

/* What every rank contributes to the one control all-gather of a step. */
struct ddp_control {
	uint64_t step;
	uint64_t sample_hash; /* of the sample indices this rank read in this step; 0: it read none, or
							 does not tell */
	uint64_t
		weights_hash; /* of the weights before this step; 0: not told, or on every rank alike */
	double waited;    /* seconds that this rank waited in some earlier steps, the same ones on all
						 ranks */
	int32_t stop;     /* the signal that asked for a stop here; 0 for none */
	int32_t save; /* rank 0: whether the state after this step is to be saved; the others' word does
					 not count */
	int32_t fault; /* exit status of a rank that can't go on (its data, say); 0 for none. Its
					  gradients are void */
};

#define DDP_NAMES 400 /* bytes for the names of some ranks */

/* How long a rank waited. */
struct ddp_waited {
	double seconds;
	int rank;
};

/* Result of a step, equal on every rank. */
struct ddp_result {
	double loss;   /* sum of the slot losses in slot order ÷ valid tokens */
	double norm;   /* of the reduced gradients */
	int64_t valid; /* tokens counted in the global batch */
	int stop;      /* the highest of the ranks' stop signals; 0 for none */
	int save;      /* rank 0's word */
	int fault; /* the lowest faulty rank's exit status, 0 for none; then the other fields but stop
				  are void */
	int fault_rank;               /* that rank; -1 for none */
	uint64_t sample_hash;         /* sum of all ranks', modulo 2^64 */
	char same_samples[DDP_NAMES]; /* "rank 1 on n1, rank 3 on n2": who read the same samples as
									 another; "" when each had its own */
	char drifted[DDP_NAMES]; /* in the same way: whose weights are not those of most ranks; "" when
								all are equal */
	int drift_here;          /* this rank is one of them */
	int nonfinite;  /* number of the first tensor whose gradient is not finite; -1 for none */
	double exposed; /* seconds this rank waited for communication, from ddp_begin on */
	struct ddp_waited waited_most, waited_least; /* by what the ranks told; of several the lowest */
};

/* What this number of ranks costs, against one that divides the slots into one piece a rank. The
 * same on every rank. */
struct ddp_cost {
	int most, least; /* slots of a rank */
	double uneven;   /* by how much the ranks with the most slots compute longer than an even share:
						0.125 for 3 of 8 on 3 */
	size_t sent, ring; /* bytes for the gradients of a step, of the rank that sends most, and of any
						  rank in a ring */
};

/* Fails with EXIT_USAGE when the world size does not fit the slots (the message says what does).
 * The memory that the slot counter needs is logged. */
struct ddp *ddp_create(struct comm *comm, struct ops *ops, const struct tensor_table *table,
	const struct ddp_config *config, struct err *err);
/* Before comm_close; with a step not finished the communicator is aborted. */
void ddp_destroy(struct ddp *ddp);

/* This rank's slots. */
int ddp_first_slot(const struct ddp *ddp);
int ddp_slot_count(const struct ddp *ddp);

/* One step:  ddp_begin; for each own slot in order: g = ddp_slot_grads; train its microbatches into
 * g, passing ddp_ready as the model's ready callback for the slot's last microbatch, and the losses
 * into ddp_slot_loss; ddp_slot_end with the number of its targets; then ddp_finish. */
void ddp_begin(struct ddp *ddp, uint64_t step);
float *ddp_slot_grads(struct ddp *ddp, int slot);
double *ddp_slot_loss(struct ddp *ddp, int slot); /* where the ops have their memory */
void ddp_ready(void *ddp, int layer);
void ddp_slot_end(struct ddp *ddp, int64_t valid);
/* Waits for the last bucket, and for the device, which is the one wait of a step; all-gathers
 * control, block sums and slot losses, and folds them in fixed order. */
int ddp_finish(struct ddp *ddp, const struct ddp_control *mine, struct ddp_result *result,
	struct err *err);

/* The reduced gradients, valid from ddp_finish to the next ddp_begin; with `zero` those of the own
 * elements only. */
const float *ddp_grads(const struct ddp *ddp);

/* With `zero`: which rank owns which elements, by rank and then by place, each element of the rows
 * once; NULL without. The own ones are ddp_own. Borrowed. */
const struct zero_shard *ddp_shards(const struct ddp *ddp, size_t *count);
const struct zero_shard *ddp_own(const struct ddp *ddp, size_t *count);
/* With `zero`, collective, behind the update: every rank's own parameters of the arena begin to
 * travel to all others, into place, those first that a forward pass needs first. What is no
 * parameter stays the caller's. Nothing without `zero`. */
void ddp_allgather_weights(struct ddp *ddp, float *arena);
/* The model's gate, with the ddp as its argument: waits until a layer's weights have come. A
 * failure comes out of ddp_finish, as do the seconds; what is computed then is worth nothing. */
void ddp_wait_weights(void *ddp, int layer);
/* Waits until all have come: for whoever reads them otherwise. `exposed` grows by the seconds that
 * took. */
int ddp_whole(struct ddp *ddp, double *exposed, struct err *err);

size_t ddp_memory(const struct ddp *ddp); /* bytes of its arenas and of what it receives into */
struct ddp_cost ddp_cost(const struct ddp *ddp);
int ddp_buckets(const struct ddp *ddp);

#endif
