/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a small world bring what they have to rank 0, and take what all have
 * (doc/bootstrap.md): the fast way of a fence, which may fail at any time. */
#ifndef MUSTER_BOOTSTRAP_H
#define MUSTER_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define BOOTSTRAP_WORLD_MAX 64
#define BOOTSTRAP_BYTES_MAX (8 << 20) /* of a rank at one fence */

struct bootstrap;

struct bootstrap_plan {
	int rank, world_size;
	const char *node; /* the name of rank 0's node; NULL: it is this rank's, too */
	const char *run;  /* the same text on all ranks of this run, and on no other; both are read only
						 during bootstrap_begin() */
};

/* Listens (rank 0) or looks for rank 0, in a thread of its own, once it has the key. NULL where
 * that can't be done. */
struct bootstrap *bootstrap_begin(const struct bootstrap_plan *plan, struct err *err);

/* Before the key is set: waits until somebody listens on rank 0's port, so that rank 0's node is
 * up; false: nobody did in time. */
bool bootstrap_reach(struct bootstrap *bootstrap, double seconds);

/* The key, which only this run's ranks know; once. */
void bootstrap_set_key(struct bootstrap *bootstrap, const unsigned char key[16]);

/* This rank comes to its next fence, the first being 0, with these bytes, which are copied. `met`
 * is called once, from this call or from the thread: true when all have come, and rank 0 has
 * nothing left to send; false when that will not be heard. */
void bootstrap_come(struct bootstrap *bootstrap, const void *bytes, size_t size,
	void (*met)(void *arg, bool all), void *arg);

/* Fences to which all have come. */
uint32_t bootstrap_complete(struct bootstrap *bootstrap);

/* What a rank came with to one of these fences; it belongs to the bootstrap. */
const unsigned char *bootstrap_bytes(struct bootstrap *bootstrap, uint32_t fence, int rank,
	size_t *size);

/* Ends the connections, and releases it; never waits. NULL is allowed. */
void bootstrap_end(struct bootstrap *bootstrap);

#endif
