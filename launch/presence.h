/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks have come to a fence, asked among the ranks themselves by datagrams
 * (doc/presence.md): for when the launcher's fence takes long, and its servers are too busy with
 * who is missing to speak for those who are there. */
#ifndef MUSTER_PRESENCE_H
#define MUSTER_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define PRESENCE_WORLD_MAX 8192

struct presence;

struct presence_plan {
	int rank, world_size;
	const char *const *nodes; /* the name of each rank's node, as others reach it; read only during
								 presence_begin() */
	const char *run;          /* the same text on all ranks of this run, and on no other */
	const char *key; /* 32 hexadecimal digits that only this run's ranks know; NULL: none */
};

/* Listens, and answers from a thread of its own. NULL where that can't be done: status EXIT_USAGE
 * for a key that is none. */
struct presence *presence_begin(const struct presence_plan *plan, struct err *err);

/* This rank has come to a fence, numbered from 0; asks who else has. */
void presence_reach(struct presence *roll, uint32_t fence);

/* Marks in `seen` (of world_size entries) the ranks that have come to that fence. Returns how many
 * have. `roll` may be NULL, here and below: nobody has been heard of. */
int presence_mark(struct presence *roll, uint32_t fence, bool *seen);

/* Whether nobody but a rank of this run can have spoken. */
bool presence_is_keyed(const struct presence *roll);

/* The port that a rank listens on, for tests. */
int presence_port(const struct presence *roll, int rank);

/* Falls silent, and releases it; never waits. */
void presence_end(struct presence *roll);

#endif
