/* SPDX-License-Identifier: Apache-2.0 */
/* The fast way of a fence in a small world: ranks send what they have put to rank 0, which sends
 * all of it to all (doc/bootstrap.md). It may fail at any time. */
#ifndef MUSTER_BOOTSTRAP_H
#define MUSTER_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/err.h"

#define BOOTSTRAP_WORLD_MAX 64
#define BOOTSTRAP_BYTES_MAX (8 << 20) /* of one rank at one fence */

struct bootstrap;

struct bootstrap_plan {
	int rank, world_size;
	const char *node; /* rank 0's, read only by bootstrap_begin(); NULL: on this node */
	uint64_t run;     /* its number (launch/run_key.h) */
};

/* Rank 0 listens now, other ranks look for rank 0 later. The work is done by a thread that starts
 * with bootstrap_set_key(). NULL on error. */
struct bootstrap *bootstrap_begin(const struct bootstrap_plan *plan, struct err *err);

/* Before the key is set: waits until a process listens on rank 0's port, which shows that rank 0's
 * node is up. False: none did in time. */
bool bootstrap_reach(struct bootstrap *bootstrap, double seconds);

/* Sets the key, which only this run's ranks know, and starts the thread. Call it once. */
void bootstrap_set_key(struct bootstrap *bootstrap, const unsigned char key[16]);

/* This rank reaches its next fence (the first is 0) with these bytes, which are copied. */
void bootstrap_come(struct bootstrap *bootstrap, const void *bytes, size_t size);

/* Waits until all ranks have reached that fence and rank 0 has sent everything. False at the
 * deadline, or at once if that will never be known. */
bool bootstrap_wait(struct bootstrap *bootstrap, uint32_t fence, struct deadline deadline);

/* How many fences all ranks have reached. */
uint32_t bootstrap_complete(struct bootstrap *bootstrap);

/* A rank's bytes at one of these fences. They belong to the bootstrap. NULL: all that was put then
 * was passing (PUT_LIST_PASSING), and the fence after that is complete. */
const unsigned char *bootstrap_bytes(struct bootstrap *bootstrap, uint32_t fence, int rank,
	size_t *size);

/* Ends the connections and releases the bootstrap. Never waits. NULL is allowed. */
void bootstrap_end(struct bootstrap *bootstrap);

#endif
