/* SPDX-License-Identifier: Apache-2.0 */
/* What one rank did when: spans of time on its two threads, kept in memory while the steps that
 * were asked for run. trace_file.h makes one file of all ranks' spans. */
#ifndef MUSTER_TRACE_H
#define MUSTER_TRACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/err.h"

enum trace_thread { TRACE_COMPUTE, TRACE_COMMUNICATION, TRACE_THREADS };

/* Times are seconds of clock_now(). A value that travels: rank 0 gets all ranks' spans. */
struct trace_span {
	double begin, end;
	double ready; /* communication: when it was queued, which is when its data were ready; else 0 */
	uint64_t step, bytes; /* bytes: sent by this rank; 0: none */
	int32_t thread;       /* enum trace_thread */
	char name[52];
};

/* A recorder. Where a function takes one, NULL is a run without a trace, which costs one branch.
 * Each thread's spans are recorded by that thread alone; they are read when the communicator is
 * idle. */
struct trace {
	_Atomic uint64_t step; /* that is recorded; 0: none */
	size_t room;           /* spans of a thread */
	struct trace_span *spans[TRACE_THREADS];
	size_t count[TRACE_THREADS];
	uint64_t dropped[TRACE_THREADS]; /* for which there was no room */
};

/* Room for so many spans of each thread. */
struct trace *trace_create(size_t room, struct err *err);
/* NULL is allowed. */
void trace_destroy(struct trace *trace);

/* What begins from now on belongs to that step; 0: is not recorded. */
static inline void trace_step(struct trace *trace, uint64_t step)
{
	if (trace)
		atomic_store(&trace->step, step);
}

/* When a span begins; 0 when it is not to be recorded. */
static inline double trace_begin(struct trace *trace)
{
	return trace && atomic_load_explicit(&trace->step, memory_order_relaxed) ? clock_now() : 0;
}

/* The span from `begin`, as trace_begin gave it, until now. The name is cut at the length of its
 * field. */
void trace_end(struct trace *trace, double begin, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define TRACE_OF_STEP " of step "
/* One that is known already. A step of 0 is filled in here; in the name, where it stands as " of
 * step N", it is taken out. */
void trace_add(struct trace *trace, const struct trace_span *span);

#endif
