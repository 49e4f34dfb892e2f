/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank did when: spans of time on its two threads, kept in memory during the traced steps.
 * trace_file.h makes one file of all ranks' spans. */
#ifndef MUSTER_TRACE_H
#define MUSTER_TRACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/err.h"

enum trace_thread { TRACE_COMPUTE, TRACE_COMMUNICATION, TRACE_THREADS };

/* A span. Times are seconds of clock_now(). Sent as it is to rank 0. */
struct trace_span {
	double begin, end;
	double ready;         /* communication: when it was queued, and so its data ready; else 0 */
	uint64_t step, bytes; /* bytes that this rank sent; 0: none */
	int32_t thread;       /* enum trace_thread */
	char name[52];
};

/* A recorder. The functions accept NULL, for a run without a trace; that costs one branch. Each
 * thread's spans are recorded by that thread alone, and read while the communicator is idle. */
struct trace {
	_Atomic uint64_t step; /* step that is being recorded; 0: none */
	size_t room;           /* spans of a thread */
	struct trace_span *spans[TRACE_THREADS];
	size_t count[TRACE_THREADS];
	uint64_t dropped[TRACE_THREADS]; /* spans that there was no room for */
};

/* Makes a recorder with room for `room` spans of each thread. NULL on error. */
struct trace *trace_create(size_t room, struct err *err);
/* `trace` may be NULL. */
void trace_destroy(struct trace *trace);

/* Spans that begin from now on belong to `step`; 0: record none. */
static inline void trace_step(struct trace *trace, uint64_t step)
{
	if (trace)
		atomic_store(&trace->step, step);
}

/* Returns the beginning of a span; 0 when it is not to be recorded. */
static inline double trace_begin(struct trace *trace)
{
	return trace && atomic_load_explicit(&trace->step, memory_order_relaxed) ? clock_now() : 0;
}

/* Adds the span from `begin`, as trace_begin returned it, until now. Names longer than their field
 * are cut. */
void trace_end(struct trace *trace, double begin, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define TRACE_OF_STEP " of step "
/* Adds a complete span. A step of 0 is filled in here; " of step N" is taken out of the name. */
void trace_add(struct trace *trace, const struct trace_span *span);

#endif
