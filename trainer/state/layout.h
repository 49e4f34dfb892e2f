/* SPDX-License-Identifier: Apache-2.0 */
/* Where the state lies in a snapshot buffer: a buffer holds the arenas of weights, m and v one
 * after the other. Also which part of it this rank saves. */
#ifndef MUSTER_LAYOUT_H
#define MUSTER_LAYOUT_H

#include <stddef.h>

#include "checkpoint/format/snapshot.h"
#include "common/err.h"
#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"

struct layout {
	const struct tensor_table *table; /* borrowed */
	int part, parts;
	struct snapshot_tensor *tensors; /* [table->count] with their writers; data is NULL before
										layout_place, and for other parts */
	struct snapshot_slice
		*slices; /* [slice_count] of parameters only: statistics are saved in the model's files */
	size_t slice_count;
	size_t *slice_at;  /* [slice_count] offset of each in the arenas */
	size_t first, end; /* elements of this part's tensors, which lie side by side in each arena */
	/* The runs that this part saves of each arena, sorted: of the weights its tensors and its
	 * slices, of the moments its slices. */
	struct zero_shard *kept[SNAPSHOT_STATES];
	size_t kept_count[SNAPSHOT_STATES];
};

/* Bytes of one arena. */
static inline size_t layout_arena(const struct layout *layout)
{
	return layout->table->elements * sizeof(float);
}

/* Bytes of a snapshot buffer. */
static inline size_t layout_bytes(const struct layout *layout)
{
	return SNAPSHOT_STATES * layout_arena(layout);
}

/* Bytes of a snapshot buffer that belong to this part. */
size_t layout_own_bytes(const struct layout *layout);

/* Divides the tensors among the writers; only as many of these write as there is something to write
 * for (layout->parts). layout->part is -1 where nothing is left for `part`. With `shards`, sorted
 * by writer and then by place, the slices are these instead of whole tensors. Borrows the table. */
int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers,
	const struct zero_shard *shards, size_t shard_count, struct err *err);
void layout_clear(struct layout *layout);

/* Points tensors and slices of this part into the buffer at `base`. */
void layout_place(struct layout *layout, const void *base);

#endif
