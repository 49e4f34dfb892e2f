/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of a world costs that need not exist: some of its ranks run one, each for itself,
 * without a network (comm_dry_run.h) and without computing. */
#ifndef MUSTER_DDP_DRY_RUN_H
#define MUSTER_DDP_DRY_RUN_H

#include "trainer/comm/comm_dry_run.h"
#include "trainer/ddp/ddp.h"

struct ddp_dry_run {
	const struct tensor_table *table;
	struct ddp_config config; /* without `node` and `nodes` */
	int nodes, ranks;         /* ranks of each node, which follow each other */
	bool flat;                /* gradients are not added on the nodes, as if each had one rank */
};

/* Of a step, its all-gathers and its control data included. */
struct ddp_dry_cost {
	struct comm_sent inside, outside; /* the most of a rank, to its node and to others */
	uint64_t node_bytes;              /* the most that a node's ranks send to others */
	uint64_t launches;                /* the most additions of a rank; a GPU launches each */
	size_t memory;                    /* the most bytes of a rank's arenas and buffers */
	int buckets;
};

/* Asks the ranks of the first node and of the last; the others differ from these by what cutting
 * into whole blocks of the norm leaves over. Returns 0, or -1 as ddp_create does. */
int ddp_dry_run(const struct ddp_dry_run *world, struct ddp_dry_cost *cost, struct err *err);

/* By a model that counts what a node sends to others, what its busiest rank sends within it, and a
 * latency for each message, one after the other. */
struct ddp_links {
	double outside, inside; /* of a node to others, of a rank within its node: bytes a second */
	double latency;         /* seconds a message */
};
double ddp_dry_seconds(const struct ddp_dry_cost *cost, const struct ddp_links *links);

#endif
