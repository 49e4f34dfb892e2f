/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which tensors share a shard, and which writer writes it, by pure functions that every
 * writer computes alike. */
#ifndef MUSTER_SHARD_PLAN_H
#define MUSTER_SHARD_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* Items [first, first + count) of the list: the contents of one shard. */
struct shard_group {
	size_t first, count;
	int writer;
};

/* Assigns each of `count` items, of bytes[i] bytes, a writer in [0, writers): contiguous runs in
 * ascending order, as even as whole items allow (the largest run is as small as possible). With at
 * least as many items as writers, each writer has one. */
void shard_plan_assign(const uint64_t *bytes, size_t count, int writers, int *writer);

/* Cuts the list into groups of consecutive items of one writer, of at most `limit` bytes (0: no
 * limit) unless a single item is larger. writer[] must be ascending. Returns the number of groups;
 * `groups` has room for `count`. */
size_t shard_plan_group(const uint64_t *bytes, const int *writer, size_t count, uint64_t limit,
	struct shard_group *groups);

#endif
