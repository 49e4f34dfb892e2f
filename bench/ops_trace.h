/* SPDX-License-Identifier: Apache-2.0 */
/* What a training asks of its device: a table of operations in front of another, which notes of
 * each call how long it takes, and the least that it has to move and to multiply. The sum of the
 * latter over a step is the step's floor. */
#ifndef MUSTER_BENCH_OPS_TRACE_H
#define MUSTER_BENCH_OPS_TRACE_H

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/ops.h"

/* Marks moments of the device, which are counted from 0. */
struct trace_clock {
	void *arg;
	void (*mark)(void *arg, size_t moment);
	double (*seconds)(void *arg, size_t from,
		size_t to); /* asked for when the device has done all that it was given */
};

/* All calls of an op that have the same shape. */
struct trace_row {
	char name[64]; /* "linear 768 to 2304" */
	size_t calls;
	double seconds;
	double bytes;      /* that passes beside matrix products move: each input read once, each output
						  written once */
	double step_bytes; /* the part of them that belongs to the floor: without what a product could
						  do on its way */
	double flops;      /* of products inside kernels of ours: attention's */
};

/* A matrix product of a row, and how often it is made. */
struct trace_gemm {
	struct gemm gemm;
	int row;
	size_t count;
};

struct ops_trace;

/* Ops of GPT-2 are noted, all others only handed on. `inner` and the clock are borrowed. NULL when
 * out of memory. */
struct ops_trace *ops_trace_create(struct ops *inner, const struct trace_clock *clock,
	struct err *err);
/* NULL is allowed. `inner` stays. */
void ops_trace_destroy(struct ops_trace *trace);
struct ops *ops_trace_table(struct ops_trace *trace);

/* Forgets what was noted so far. */
void ops_trace_clear(struct ops_trace *trace);
/* Once the device has done all calls: gives the rows their seconds. -1 where a call could not be
 * noted. */
int ops_trace_settle(struct ops_trace *trace, struct err *err);

const struct trace_row *ops_trace_rows(const struct ops_trace *trace, size_t *count);
const struct trace_gemm *ops_trace_gemms(const struct ops_trace *trace, size_t *count);

#endif
