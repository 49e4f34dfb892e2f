/* SPDX-License-Identifier: Apache-2.0 */
/* Where the state of a training lies in a slot of the snapshots' memory. Each shard's tensors are packed without gaps, all
 * masters, then all m, then all v, from a page boundary on: an optimizer file's data is one run of memory, and a model
 * file's its first third (fp32 weights and masters are the same bytes). */
#ifndef MUSTER_LAYOUT_H
#define MUSTER_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/snapshot.h"
#include "common/err.h"
#include "trainer/copier.h"
#include "trainer/state.h"
#include "trainer/tensors.h"

struct layout {
	const struct tensor_table *table; /* borrowed */
	int part, parts;
	struct snapshot_tensor *tensors;  /* [table->count] with writers; data NULL until layout_place, and of other parts */
	struct snapshot_slice *slices;    /* [table->count] */
	size_t (*at)[SNAPSHOT_STATES];    /* [table->count] bytes from the beginning of the slot; own tensors only */
	size_t bytes;                     /* of a slot */
};

/* Bytes of the state of one tensor. */
static inline uint64_t layout_tensor_bytes(const struct tensor *row)
{
	return SNAPSHOT_STATES * sizeof(float) * (uint64_t)row->count;
}

/* Divides the tensors among as many of `writers` as there is something to write for (layout->parts), and lays out those of
 * number `part`; layout->part is -1 and bytes 0 where nothing is left for it. `shard_size` as in struct snapshot. */
int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers, uint64_t shard_size,
	struct err *err);
void layout_clear(struct layout *layout);

/* Points tensors and slices of this part into the slot at `base`. */
void layout_place(struct layout *layout, const void *base);

/* What is to be copied from the arenas into the slot at `base`, in the order of the arenas and in pieces of at most
 * COPIER_PIECE bytes; malloc'ed and the caller's. NULL when out of memory. */
struct copier_piece *layout_pieces(const struct layout *layout, const struct state *state, void *base, size_t *count);

#endif
