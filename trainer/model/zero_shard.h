/* SPDX-License-Identifier: Apache-2.0 */
/* A run of elements of the arenas, and the rank that keeps the optimizer's state of it. */
#ifndef MUSTER_ZERO_SHARD_H
#define MUSTER_ZERO_SHARD_H

#include <stddef.h>

struct zero_shard {
	int rank;
	size_t first, end; /* elements */
};

#endif
