/* SPDX-License-Identifier: Apache-2.0 */
/* Notes what a training asks of its device: a table of operations in front of another one. For each
 * call it notes how long it takes, and the least that it has to move and to multiply. The sum of
 * the latter over a step is the step's floor. */
#ifndef MUSTER_BENCH_OPS_TRACE_H
#define MUSTER_BENCH_OPS_TRACE_H

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/ops.h"

/* Records moments on the device. Moments are numbered from 0. */
struct trace_clock {
	void *arg;
	void (*record)(void *arg, size_t moment);
	double (*seconds)(void *arg, size_t from,
		size_t to); /* called once the device has finished all its work */
};

/* All calls of an op with the same shape. */
struct trace_row {
	char name[64]; /* "linear 768 to 2304" */
	size_t calls;
	double seconds;
	double bytes;      /* moved outside products: each input read once, each output written once */
	double step_bytes; /* the part of `bytes` that belongs to the floor: without those that a
						  product could save */
	double flops;      /* of the products inside our own kernels: attention's */
};

/* A matrix product of a row, and how often it runs. */
struct trace_gemm {
	struct gemm gemm;
	int row;
	size_t count;
};

struct ops_trace;

/* Ops of GPT-2 are noted; all others are only passed on. `inner` and what the clock points to are
 * borrowed. NULL with err set when out of memory. */
struct ops_trace *ops_trace_create(struct ops *inner, const struct trace_clock *clock,
	struct err *err);
/* NULL is allowed. `inner` is not destroyed. */
void ops_trace_destroy(struct ops_trace *trace);
struct ops *ops_trace_table(struct ops_trace *trace);

/* Forgets everything noted so far. */
void ops_trace_clear(struct ops_trace *trace);
/* Gives the rows their seconds; to be called once the device has finished all calls. -1 with err
 * set when a call could not be noted. */
int ops_trace_settle(struct ops_trace *trace, struct err *err);

const struct trace_row *ops_trace_rows(const struct ops_trace *trace, size_t *count);
const struct trace_gemm *ops_trace_gemms(const struct ops_trace *trace, size_t *count);

#endif
