/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of an allocation: which of them have a step, and which are left out of all later ones.
 * Pure functions but for memory. */
#ifndef MUSTER_NODES_H
#define MUSTER_NODES_H

#include <stdbool.h>

#include "common/err.h"

struct node {
	char name[256];
	int fd;           /* the connection that its slurmstepd holds; -1: none */
	bool used;        /* the present step runs there */
	bool heard;       /* it has told of the end of a rank of that step, or of its own part of it */
	bool lost;        /* that connection broke, other than by a reset */
	bool unreachable; /* Slurm calls it down, or its slurmd does not answer */
	bool out;         /* no step gets it any more */
};

struct nodes {
	struct node *all; /* freed by nodes_free */
	int count;
};

/* The nodes of a host list in Slurm's notation, in its order. */
int nodes_read(struct nodes *nodes, const char *list, struct err *err);
void nodes_free(struct nodes *nodes);

/* How many are not left out. */
int nodes_left(const struct nodes *nodes);

/* Gives the first `most` nodes that are not left out to the next step. Returns how many it has. */
int nodes_choose(struct nodes *nodes, int most);

/* The node of that name; NULL if there is none. */
struct node *nodes_find(struct nodes *nodes, const char *name);

enum node_kind {
	NODES_USED,   /* those of the step */
	NODES_OUT,    /* who are left out */
	NODES_UNSURE, /* who are silent, and who neither have the step nor are left out */
};

/* Their names with commas between; "" for none. malloc'ed; NULL when out of memory. */
char *nodes_list(const struct nodes *nodes, enum node_kind kind);

/* The tasks that each node has, from Slurm's run-length code, such as "2(x4)"; -1 if that is
 * malformed or not all nodes have the same number. */
int nodes_tasks_each(const char *coded);

#endif
