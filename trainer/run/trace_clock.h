/* SPDX-License-Identifier: Apache-2.0 */
/* How far the ranks' clocks are apart: each node's monotonic clock begins somewhere else. */
#ifndef MUSTER_TRACE_CLOCK_H
#define MUSTER_TRACE_CLOCK_H

#include "trainer/comm/comm.h"

/* Seconds of clock_now(), rank 0's but for `offset`. */
struct trace_clock {
	double at;     /* when it was measured */
	double offset; /* what the rank's clock showed beyond rank 0's at that moment */
	double error; /* by how much the offset may be wrong at most: half of the shortest round trip */
};

/* All ranks at once. A ping goes to each rank and back several times; of the quickest round trip
 * the middle is taken for the moment at which the other clock was read (Cristian, "Probabilistic
 * clock synchronization", 1989). clocks[size] is filled in on rank 0; the others may pass NULL. */
int trace_clock_measure(struct comm *comm, struct trace_clock *clocks, struct err *err);

/* A time of that rank's clock on rank 0's, from a measurement before and one after it: clocks drift
 * evenly in between. */
double trace_clock_on_axis(const struct trace_clock *before, const struct trace_clock *after,
	double time);

#endif
