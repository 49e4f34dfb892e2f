/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks have come to a fence, asked among the ranks themselves by datagrams (doc/roll-call.md): for when the
 * launcher's fence takes long, and its servers are too busy with who is missing to speak for those who are there. */
#ifndef MUSTER_ROLL_CALL_H
#define MUSTER_ROLL_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

#define ROLL_CALL_WORLD_MAX 8192

struct roll_call;

struct roll_call_plan {
	int rank, world_size;
	const char *const *nodes; /* the name of each rank's node, as others reach it; read only during roll_call_begin() */
	const char *run;          /* the same text on all ranks of this run, and on no other */
	const char *key;          /* 32 hexadecimal digits that only this run's ranks know; NULL: none */
};

/* Listens, and answers from a thread of its own. NULL where that can't be done: status EXIT_USAGE for a key that is none. */
struct roll_call *roll_call_begin(const struct roll_call_plan *plan, struct err *err);

/* This rank has come to a fence, numbered from 0; asks who else has. */
void roll_call_reach(struct roll_call *roll, uint32_t fence);

/* Marks in `seen` (of world_size entries) the ranks that have come to that fence. Returns how many have. `roll` may be NULL,
 * here and below: nobody has been heard of. */
int roll_call_mark(struct roll_call *roll, uint32_t fence, bool *seen);

/* Whether nobody but a rank of this run can have spoken. */
bool roll_call_is_keyed(const struct roll_call *roll);

/* The port that a rank listens on, for tests. */
int roll_call_port(const struct roll_call *roll, int rank);

/* Falls silent, and releases it; never waits. */
void roll_call_end(struct roll_call *roll);

#endif
