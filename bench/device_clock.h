/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's own time for a trace of operations: an event on their stream for every moment. */
#ifndef MUSTER_BENCH_DEVICE_CLOCK_H
#define MUSTER_BENCH_DEVICE_CLOCK_H

#include "bench/ops_trace.h"

struct device_clock;

/* `ops` are the GPU's (struct cuda), borrowed. NULL when out of memory. */
struct device_clock *device_clock_create(struct ops *ops, struct err *err);
/* NULL is allowed. */
void device_clock_destroy(struct device_clock *clock);
struct trace_clock device_clock_of(struct device_clock *clock);
/* 0, or -1 with the first error of all marks. */
int device_clock_check(const struct device_clock *clock, struct err *err);

#endif
