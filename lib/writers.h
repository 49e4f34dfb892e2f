/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks save: each of them hands its part of every save to the service of its node. */
#ifndef MUSTER_WRITERS_H
#define MUSTER_WRITERS_H

#include "lib/muster.h"

/* A value. Without part_of: this rank alone saves. */
struct writers {
	int *part_of; /* by rank: its part, from 0; -1: it doesn't save */
	int ranks;    /* the world size */
	int rank;     /* this one */
	int part;     /* this rank's; -1: none */
	int parts;    /* their number; 0 counts as 1 */
	int sharers;  /* number of them on this node; 0 counts as 1 */
};

/* Collective: finds them out. `status` other than 0: this rank can't go on. Returns the status of
 * all ranks, with muster_error; writers_release frees *writers. */
int writers_meet(struct muster *muster, int status, enum muster_writers choice, double timeout,
	struct writers *writers);
void writers_release(struct writers *writers);

static inline int writers_count(const struct writers *writers)
{
	return writers->parts > 0 ? writers->parts : 1;
}

/* The part of a rank; -1: it doesn't save, or there is no such rank. */
int writers_part(const struct writers *writers, int rank);

#endif
