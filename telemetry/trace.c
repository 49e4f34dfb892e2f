/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps spans in arrays that are allocated once, so that nothing waits or grows while steps are
 * measured. */
#include "telemetry/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace *trace_create(size_t room, struct err *err)
{
	struct trace *trace = calloc(1, sizeof *trace);
	if (!trace) {
		err_set(err, "trace: out of memory");
		return NULL;
	}
	trace->room = room;
	for (int i = 0; i < TRACE_THREADS; i++) {
		trace->spans[i] = calloc(room, sizeof *trace->spans[i]);
		if (!trace->spans[i]) {
			err_set(err,
				"trace: couldn't allocate room for %zu spans: out of memory; give fewer "
				"--trace-steps",
				room);
			trace_destroy(trace);
			return NULL;
		}
	}
	return trace;
}

void trace_destroy(struct trace *trace)
{
	if (!trace)
		return;
	for (int i = 0; i < TRACE_THREADS; i++)
		free(trace->spans[i]);
	free(trace);
}

void trace_add(struct trace *trace, const struct trace_span *span)
{
	uint64_t step = trace ? atomic_load_explicit(&trace->step, memory_order_relaxed) : 0;
	if (!step || span->begin <= 0)
		return;
	if (trace->count[span->thread] == trace->room) {
		trace->dropped[span->thread]++;
		return;
	}
	struct trace_span *kept = &trace->spans[span->thread][trace->count[span->thread]++];
	*kept = *span;
	if (!kept->step)
		kept->step = step;
	char *suffix = strstr(kept->name, TRACE_OF_STEP);
	if (suffix)
		*suffix = '\0';
}

void trace_end(struct trace *trace, double begin, const char *format, ...)
{
	struct trace_span span = { .begin = begin, .thread = TRACE_COMPUTE };
	va_list args;
	if (!trace || begin <= 0)
		return;
	span.end = clock_now();
	va_start(args, format);
	vsnprintf(span.name, sizeof span.name, format, args);
	va_end(args);
	trace_add(trace, &span);
}
