/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator's provider for a rank of a world that need not exist: it sends nothing, and counts
 * what it would send. What it would receive is what it sends, so that ranks that tell each other
 * the same agree; of gradients nothing comes. */
#ifndef MUSTER_COMM_DRY_RUN_H
#define MUSTER_COMM_DRY_RUN_H

#include <stdint.h>

#include "trainer/comm/comm_provider.h"

struct comm_sent {
	uint64_t messages, bytes;
};

struct comm_sent_count {
	int rank;                         /* who sends */
	const int *node_of;               /* [world] the ranks' nodes, borrowed; NULL: nothing counts */
	struct comm_sent inside, outside; /* to ranks of its node, to others */
};

/* Adds what the rank sends of these transfers. */
void comm_dry_run_add(struct comm_sent_count *count, const struct comm_transfer *transfers,
	int transfer_count);

extern const struct comm_provider comm_dry_run;

/* Of a communicator over comm_dry_run; to be set up and read while no operation is in flight. */
struct comm_sent_count *comm_dry_run_count(struct comm *comm);

#endif
