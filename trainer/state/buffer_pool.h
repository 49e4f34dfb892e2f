/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer pool: several buffers for the state's arenas, in memory that the checkpoint service
 * can be given. One buffer is live. Once it is handed over, the next update writes into another
 * one, which is live from then on; so a snapshot costs no copy. What this rank does not save exists
 * once: all buffers share that memory. */
#ifndef MUSTER_BUFFER_POOL_H
#define MUSTER_BUFFER_POOL_H

#include <stdbool.h>

#include "common/err.h"
#include "trainer/state/layout.h"
#include "trainer/state/state.h"

/* Zeroed: not started. */
struct buffer_pool {
	struct state *state; /* its memory has a memory file a buffer */
	const struct layout *layout;
	int there; /* buffers whose pages are there; those after them take no memory yet */
};

/* Makes buffers of the layout beside that of the state (state_alloc_saved), so that there are
 * `sets`, and prefaults the first of them: a third one is needed only where a save still runs when
 * the next begins. Borrows the state and the layout. */
int buffer_pool_start(struct buffer_pool *pool, struct state *state, const struct layout *layout,
	int sets, struct err *err);

/* The buffer that holds the current state. */
int buffer_pool_live(const struct buffer_pool *pool);

/* Whether switching to the buffer takes no memory. */
bool buffer_pool_is_there(const struct buffer_pool *pool, int buffer);

/* From the next update on that changes anything, the state lies in `buffer`, which is prefaulted if
 * it is not there; the buffer that was live stays as it is. */
void buffer_pool_switch(struct buffer_pool *pool, int buffer);

/* Frees the buffers and with them the state's arenas. */
void buffer_pool_stop(struct buffer_pool *pool);

#endif
