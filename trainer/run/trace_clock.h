/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how far apart the ranks' clocks are, since each node's monotonic clock starts at another
 * time. */
#ifndef MUSTER_TRACE_CLOCK_H
#define MUSTER_TRACE_CLOCK_H

#include "trainer/comm/comm.h"

/* In seconds of rank 0's clock_now(), except `offset`. */
struct trace_clock {
	double at;     /* time of the measurement */
	double offset; /* the rank's clock minus rank 0's at that time */
	double error;  /* largest error of the offset: half of the shortest round trip */
};

/* Collective. A ping goes to each rank and back several times. The middle of the quickest round
 * trip counts as the moment at which the other clock was read (Cristian, "Probabilistic clock
 * synchronization", 1989). Fills in clocks[size] on rank 0; the others may pass NULL. */
int trace_clock_measure(struct comm *comm, struct trace_clock *clocks, struct err *err);

/* Converts a time of the rank's clock to rank 0's, from a measurement before and one after it;
 * assumes that the clock drifts evenly in between. */
double trace_clock_on_axis(const struct trace_clock *before, const struct trace_clock *after,
	double time);

#endif
