/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training: weights, both moments of AdamW, and the step after which they stand.
 * Nothing else is kept from step to step. */
#ifndef MUSTER_STATE_H
#define MUSTER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"
#include "trainer/comm/comm.h"
#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"
#include "trainer/ops/ops.h"

struct state {
	const struct tensor_table *tensors;
	struct ops *ops;
	uint64_t step;           /* steps done */
	float *weights, *m, *v;  /* arenas of the table's offsets */
	struct adamw_state next; /* where the next update writes instead of in place; NULL: in place */
	bool lent;               /* the arenas are not this state's */
	void (*before)(void *arg); /* called once when the next update is about to write: a snapshot is
								  being copied; NULL: none is */
	void *before_arg;
	/* Where the host can't touch the memory of `ops`, the arenas above are gone once the state is
	 * in these: */
	struct adamw_state device;  /* the moments of `own` elements only, one run behind the other */
	float *compute;             /* the weights that passes read; device.weights in fp32 */
	struct adamw_chunk *chunks; /* [chunk_count] of `own`, there, too, where the ops update them at
								   once; else NULL */
	size_t chunk_count;
	struct hasher *hasher; /* of what is copied out for it piece by piece */
	char *piece;
	const struct zero_shard *own; /* [own_count] the elements whose moments are kept here: memory
									 behind the others' is never touched */
	size_t own_count;
	bool sharded; /* `own` is not everything */
};

/* Allocates zeroed arenas, from `ops` where that is host memory. */
int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	struct err *err);
/* The same with the moments of `own` elements only; borrowed until state_free. The addresses of all
 * are there, in host memory. */
int state_alloc_shards(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t count, struct err *err);
void state_free(struct state *state);
size_t state_bytes(const struct state *state);
size_t state_moment_bytes(const struct state *state);

/* Moves the state to arenas of the caller, in host memory like those of `ops` then, who keeps them
 * until state_free. */
void state_move(struct state *state, const struct adamw_state *to);

/* Where the memory of `ops` is not the host's, from now on the state is there, and no more here;
 * else nothing. Once, before the first update; until then all is in host memory. */
int state_upload(struct state *state, struct err *err);
/* The weights as passes read them, and the master weights that updates change: where `ops` have
 * their memory. */
float *state_compute(const struct state *state);
float *state_master(const struct state *state);
/* Weights of other ranks have come into the master weights. */
void state_allgather_weights(struct state *state);

/* Step 0: the initial weights of `seed`. */
void state_init(struct state *state, uint64_t seed);

/* Collective: every rank gets rank 0's state (of a sharded one the weights only); then all compare
 * step and hash. A rank whose bytes differ is named (ERR_SHARED). */
int state_share(struct state *state, struct comm *comm, struct err *err);

/* Of the weights, for a comparison of ranks; never 0. Waits for the device. */
uint64_t state_weights_hash(struct state *state);

/* The update by the reduced gradients; without `changes` it is masked. The weights may lie
 * elsewhere afterwards, and what was there before stays as it is. */
void state_update(struct state *state, const float *grads, bool changes);

#endif
