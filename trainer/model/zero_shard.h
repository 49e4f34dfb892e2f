/* SPDX-License-Identifier: Apache-2.0 */
/* A run of elements of the arenas, and the rank that keeps its optimizer state (--zero 1). Both
 * ddp/ and state/ use it. */
#ifndef MUSTER_ZERO_SHARD_H
#define MUSTER_ZERO_SHARD_H

#include <stddef.h>

struct zero_shard {
	int rank;
	size_t first, end; /* elements */
};

#endif
