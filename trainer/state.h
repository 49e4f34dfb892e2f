/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training: weights, both moments of AdamW, and the step after which they stand. Nothing else is kept
 * from step to step. */
#ifndef MUSTER_STATE_H
#define MUSTER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "trainer/comm.h"
#include "trainer/ops.h"
#include "trainer/zero_shard.h"
#include "trainer/tensors.h"

struct state {
	const struct tensor_table *tensors;
	struct ops *ops;
	uint64_t step;              /* steps done */
	float *weights, *m, *v;     /* arenas of the table's offsets */
	struct adamw_state next;    /* where the next update writes instead of in place; NULL: in place */
	bool lent;                  /* the arenas are not of `ops` */
	const struct zero_shard *own;    /* [own_count] the elements whose moments are kept here: memory behind the others' is never touched */
	size_t own_count;
	bool sharded;               /* `own` is not everything */
};

/* Allocates zeroed arenas from `ops`. */
int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors, struct err *err);
/* The same with the moments of `own` elements only; borrowed until state_free. The addresses of all are there, in host memory. */
int state_alloc_shards(struct state *state, struct ops *ops, const struct tensor_table *tensors, const struct zero_shard *own,
	size_t count, struct err *err);
void state_free(struct state *state);
size_t state_bytes(const struct state *state);
size_t state_moment_bytes(const struct state *state);

/* Moves the state to arenas of the caller, in host memory like those of `ops` then, who keeps them until state_free. */
void state_move(struct state *state, const struct adamw_state *to);

/* Step 0: the initial weights of `seed`. */
void state_init(struct state *state, uint64_t seed);

/* Collective: every rank gets rank 0's state (of a sharded one the weights only); then all compare step and hash. A rank whose bytes differ is named
 * (ERR_SHARED). */
int state_share(struct state *state, struct comm *comm, struct err *err);

/* Of the weights, for a comparison of ranks; never 0. */
uint64_t state_weights_hash(const struct state *state);

/* The update by the reduced gradients; without `changes` it is masked. The weights may lie elsewhere afterwards, and what was
 * there before stays as it is. */
void state_update(struct state *state, const float *grads, bool changes);

#endif
