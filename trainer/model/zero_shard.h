/* SPDX-License-Identifier: Apache-2.0 */
/* A run of elements of the arenas, and the rank that keeps its optimizer state (--zero 1). Both
 * ddp/ and state/ use it. */
#ifndef MUSTER_ZERO_SHARD_H
#define MUSTER_ZERO_SHARD_H

#include <stddef.h>

#include "trainer/model/tensors.h"

struct zero_shard {
	int rank;
	size_t first, end; /* elements */
};

/* The elements of the shard that are among [first, end); none where it ends before it begins. */
static inline struct zero_shard zero_shard_cut(const struct zero_shard *shard, size_t first,
	size_t end)
{
	return (struct zero_shard) { shard->rank, shard->first > first ? shard->first : first,
		shard->end < end ? shard->end : end };
}

/* The elements of the shard that are the row's, of which only a parameter has any. */
static inline struct zero_shard zero_shard_of(const struct zero_shard *shard,
	const struct tensor *row)
{
	size_t count = row->role == TENSOR_PARAMETER ? row->count : 0;
	return zero_shard_cut(shard, row->offset, row->offset + count);
}

#endif
