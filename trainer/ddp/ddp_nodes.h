/* SPDX-License-Identifier: Apache-2.0 */
/* The way of the gradients over nodes. Ranks are counted node by node, so that those of a node
 * follow each other, whatever the launcher's order: that number is a rank's place, and stands for
 * it in the whole engine. The first rank has the first place. A bucket is cut into one segment for
 * each rank, its owner, which sums it. The segments lie in columns: one column for each rank of the
 * largest node, with one segment for each owner. On each node one rank carries a column: it adds
 * the node's pieces of it, exchanges with the owners on other nodes, and passes the sums on within
 * its node. So each byte leaves a node once for each of the node's pieces, however many ranks the
 * node has.
 *
 *     3 nodes of 2, 2 and 1 ranks:      column 0       column 1
 *                                    0 | 2 | 4        1 | 3          owners
 *                     node 0         rank 0           rank 1         carriers
 *                     node 1         rank 2           rank 3
 *                     node 2         rank 4           rank 4
 *
 * With one rank a node there is one column, which everyone carries. */
#ifndef MUSTER_DDP_NODES_H
#define MUSTER_DDP_NODES_H

#include "common/err.h"

struct ddp_nodes {
	int world, count;
	int *rank;         /* [world] at each place */
	int *place;        /* [world] of each rank; all else is by places */
	int columns;       /* ranks of the largest node */
	int *begin;        /* [count + 1] a node's first place */
	int *node_of;      /* [world] */
	int *position;     /* [world] of a rank's segment among those of a bucket */
	int *owner;        /* [world] the rank whose segment is at a position */
	int *column_start; /* [columns + 1] position of a column's first segment */
};

/* `numbers`: [world] the number of each rank's node. Each rank counts as a node of its own where
 * all are on one. Free it with ddp_nodes_clear, also after an error. */
int ddp_nodes_make(struct ddp_nodes *nodes, int world, const int *numbers, struct err *err);
void ddp_nodes_clear(struct ddp_nodes *nodes);

int ddp_nodes_size(const struct ddp_nodes *nodes, int node);
/* The column of the segment that a rank owns. */
int ddp_nodes_column(const struct ddp_nodes *nodes, int rank);
int ddp_nodes_carrier(const struct ddp_nodes *nodes, int node, int column);
/* The positions [*first, *end) that a rank carries; its own segment is one of them. */
void ddp_nodes_carried(const struct ddp_nodes *nodes, int rank, int *first, int *end);

#endif
