/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks have come to a fence, learnt among the ranks themselves by datagrams
 * (doc/presence.md). It is for a launcher's fence that takes long, while the launcher's servers are
 * too busy with missing ranks to answer for those that are there. */
#ifndef MUSTER_PRESENCE_H
#define MUSTER_PRESENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "launch/rdzv_provider.h"
#include "launch/run_key.h"

#define PRESENCE_WORLD_MAX 8192

struct presence;

struct presence_plan {
	int rank, world_size;
	char (*nodes)[RDZV_NODE_SIZE]; /* each rank's; read only by presence_begin() */
	struct run_key run;
};

/* Listens, and answers from its own thread. NULL on error. */
struct presence *presence_begin(const struct presence_plan *plan, struct err *err);

/* This rank has come to a fence, numbered from 0; asks which others have. */
void presence_reach(struct presence *roll, uint32_t fence);

/* Marks in `seen` (world_size entries) the ranks that have come to that fence. Returns how many
 * have. `roll` may be NULL, here and below: no rank is known. */
int presence_mark(struct presence *roll, uint32_t fence, bool *seen);

/* Whether a key ensures that only ranks of this run are believed. */
bool presence_is_keyed(const struct presence *roll);

/* The port that a rank listens on, for tests. */
int presence_port(const struct presence *roll, int rank);

/* Stops answering and releases it. Never waits. */
void presence_end(struct presence *roll);

#endif
