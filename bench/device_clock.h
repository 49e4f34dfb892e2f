/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's own clock for a trace of operations: an event on their stream at every moment. Timing
 * by the host would measure the queue, not the device. */
#ifndef MUSTER_BENCH_DEVICE_CLOCK_H
#define MUSTER_BENCH_DEVICE_CLOCK_H

#include "bench/ops_trace.h"

struct device_clock;

/* `device` must be a GPU's (struct cuda) and is borrowed. NULL with err set when out of memory. */
struct device_clock *device_clock_create(struct device *device, struct err *err);
/* NULL is allowed. */
void device_clock_destroy(struct device_clock *clock);
struct trace_clock device_clock_of(struct device_clock *clock);
/* 0, or -1 with the first error of all records and readings. */
int device_clock_check(const struct device_clock *clock, struct err *err);

#endif
