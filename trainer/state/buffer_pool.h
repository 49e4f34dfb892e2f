/* SPDX-License-Identifier: Apache-2.0 */
/* The state's arenas, several times over, in memory that the checkpoint service can be given. One
 * set is live; once it has been handed over the next update writes into another, which is live from
 * then on. So a snapshot costs no copy. What this rank does not save is there once: it is the same
 * memory in every set. */
#ifndef MUSTER_BUFFER_POOL_H
#define MUSTER_BUFFER_POOL_H

#include "checkpoint/format/snapshot_memory.h"
#include "common/err.h"
#include "trainer/state/layout.h"
#include "trainer/state/state.h"

/* Zeroed: none. */
struct buffer_pool {
	struct snapshot_memory memory; /* a buffer a set */
	struct state *state;
};

/* Makes `sets` sets of the layout and moves the state, which must lie in host memory, into the
 * first; it is borrowed. */
int buffer_pool_start(struct buffer_pool *pool, struct state *state, const struct layout *layout,
	int sets, struct err *err);

/* The buffer that holds the state as it is. */
int buffer_pool_live(const struct buffer_pool *pool);

/* From the next update on that changes anything the state lies in `buffer`, and the live one stays
 * as it is. */
void buffer_pool_switch(struct buffer_pool *pool, int buffer);

/* The state has no arenas then. */
void buffer_pool_stop(struct buffer_pool *pool);

#endif
