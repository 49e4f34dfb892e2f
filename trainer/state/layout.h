/* SPDX-License-Identifier: Apache-2.0 */
/* Where the state of a training lies in a buffer of the snapshots' memory: as in the arenas, which
 * such a buffer holds one behind the other, weights, m, v. A rank that saves only a part of the
 * tensors tells where these are. */
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
	struct snapshot_tensor *
		tensors; /* [table->count] with writers; data NULL until layout_place, and of other parts */
	struct snapshot_slice
		*slices; /* [slice_count] one a parameter: statistics are in the model's files only */
	size_t slice_count;
	size_t *slice_at;  /* [slice_count] where each begins in the arenas */
	size_t first, end; /* elements of the part's tensors in each arena; they stand side by side */
	/* What this part saves of each arena, by place: of the weights its tensors and its slices, of
	 * the moments its slices. */
	struct zero_shard *kept[SNAPSHOT_STATES];
	size_t kept_count[SNAPSHOT_STATES];
};

/* Bytes of one arena. */
static inline size_t layout_arena(const struct layout *layout)
{
	return layout->table->elements * sizeof(float);
}

/* Bytes of a buffer. */
static inline size_t layout_bytes(const struct layout *layout)
{
	return SNAPSHOT_STATES * layout_arena(layout);
}

/* Bytes of what is this part's in a buffer. */
size_t layout_own_bytes(const struct layout *layout);

/* Divides the tensors among as many of `writers` as there is something to write for
 * (layout->parts); layout->part is -1 where nothing is left for number `part`. With `shards`, by
 * writer and then by place, the slices are these instead of whole tensors. */
int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers,
	const struct zero_shard *shards, size_t shard_count, struct err *err);
void layout_clear(struct layout *layout);

/* Points tensors and slices of this part into the buffer at `base`. */
void layout_place(struct layout *layout, const void *base);

#endif
