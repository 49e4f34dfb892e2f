/* SPDX-License-Identifier: Apache-2.0 */
/* Forked ranks that meet over the file rendezvous, each on a "node" of its own. */
#ifndef MUSTER_MEETING_FIXTURE_H
#define MUSTER_MEETING_FIXTURE_H

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

#define MEETING_MAX 8

/* What a rank came to; a process that died has rc 1 and its signal. */
struct meeting_rank {
	int rc, signal;
	struct err err;
	double seconds;           /* in the body */
	unsigned char value[128]; /* for the body */
};

typedef int meeting_body(struct rdzv *rdzv, const struct ident *ident, struct meeting_rank *mine,
	struct err *err);

/* What a rank has put and how often it has met the others so far. */
struct meeting_count {
	int puts, fences;
};

struct meeting_count meeting_count(int rank);

/* Runs the ranks and waits for all; nodes are named n0, n1, … */
void meeting_run(int size, meeting_body *body, struct meeting_rank *ranks);

#endif
