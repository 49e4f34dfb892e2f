/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a training: weights, both moments of AdamW, and the step they belong to. Nothing
 * else is kept from step to step. */
#ifndef MUSTER_STATE_H
#define MUSTER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"
#include "common/hash.h"
#include "trainer/comm/comm.h"
#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"
#include "trainer/ops/ops.h"

struct state {
	const struct tensor_table *tensors;
	struct ops *ops;
	uint64_t step;                 /* steps done */
	float *weights, *m, *v;        /* arenas with the table's offsets */
	struct adamw_state next;       /* where the next update writes; NULL: in place */
	struct snapshot_memory memory; /* holds the arenas, one after the other; without buffers: they
									  are allocated */
	void (*before)(void *arg);     /* called once, when the next update is about to write, because a
									  snapshot is being copied; NULL: none is */
	void *before_arg;
	/* On a device with memory of its own the state moves here, and the arenas above are gone: */
	struct adamw_state on_device; /* moments of `own` only, one run after the other */
	float *compute;               /* the weights that passes read; on_device.weights in fp32 */
	struct adamw_chunk *chunks;   /* [chunk_count] of `own`, in device memory */
	size_t chunk_count;
	struct hasher *hasher; /* hashes weights that are copied out piece by piece */
	char *piece;
	const struct zero_shard *own; /* [own_count] elements whose moments are kept here; memory of the
									 other ranks' moments is never touched */
	size_t own_count;
	struct zero_shard whole; /* all elements: `own`, unless it is sharded */
	bool sharded;
};

/* Allocates zeroed arenas, in host memory. With `own`, of the moments only those of its shards:
 * borrows it until state_free. The arenas still have addresses for all elements. NULL: of all
 * elements. The struct must stay where it is. */
int state_alloc(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t own_count, struct err *err);
/* The same for a state that will be saved. Where the device has no memory of its own, the arenas
 * lie in a memory file, which the checkpoint service can be given (buffer_pool.h). */
int state_alloc_saved(struct state *state, struct ops *ops, const struct tensor_table *tensors,
	const struct zero_shard *own, size_t own_count, struct err *err);
/* Prefaults the pages of a memory file, which takes less time than a fault for each, and changes
 * nothing. */
void state_prefault(struct state *state);
void state_free(struct state *state);
size_t state_bytes(const struct state *state);
size_t state_moment_bytes(const struct state *state);

/* Where the device has memory of its own, moves the state there; else does nothing. Call it
 * once, before the first update; until then all is in host memory. */
int state_upload(struct state *state, struct err *err);
/* The weights as passes read them, and the master weights that updates change; both in the
 * device's memory. */
float *state_compute(const struct state *state);
float *state_master(const struct state *state);
/* Call it when other ranks' weights have come into the master weights: casts them for the
 * passes. */
void state_allgather_weights(struct state *state);

/* Sets step 0 and the initial weights of `seed`. */
void state_init(struct state *state, uint64_t seed);
/* Those that this rank keeps. */
void state_zero_moments(struct state *state);

/* Collective: every rank gets rank 0's state (of a sharded one only the weights); then all compare
 * step and hash. ERR_SHARED names a rank whose bytes differ. */
int state_share(struct state *state, struct comm *comm, struct err *err);

/* A hash of the weights, to compare ranks; never 0. Waits for the device. */
uint64_t state_weights_hash(struct state *state);

/* Updates by the reduced gradients; without `changes` it is masked. Afterwards the weights may lie
 * elsewhere, and those at the old place stay as they were. */
void state_update(struct state *state, const float *grads, bool changes);

#endif
