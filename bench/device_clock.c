/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA events as the clock of a trace: one event per moment, recorded on the stream of the
 * operations. */
#include "bench/device_clock.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "trainer/cuda/host/cuda.h"

struct device_clock {
	cudaStream_t stream;
	cudaEvent_t *events; /* [made], indexed by moment; reused in the next step */
	size_t made, room;
	bool failed;
	struct err err; /* the first error */
};

/* Remembers the first error. */
static bool run(struct device_clock *clock, int code, const char *call, int line)
{
	struct err err;
	if (cuda_check(code, call, __FILE__, line, &err) < 0 && !clock->failed) {
		clock->failed = true;
		clock->err = err;
	}
	return !clock->failed;
}

#define RUN(clock, call) run(clock, (int)(call), #call, __LINE__)

static bool make_event(struct device_clock *clock)
{
	if (clock->made == clock->room) {
		size_t room = clock->room ? 2 * clock->room : 1024;
		cudaEvent_t *events = realloc(clock->events, room * sizeof(cudaEvent_t));
		if (!events) {
			err_set(&clock->err, "trace: couldn't keep %zu events: out of memory", room);
			clock->failed = true;
			return false;
		}
		clock->events = events;
		clock->room = room;
	}
	if (!RUN(clock, cudaEventCreate(&clock->events[clock->made])))
		return false;
	clock->made++;
	return true;
}

static void record(void *arg, size_t moment)
{
	struct device_clock *clock = arg;
	while (clock->made <= moment)
		if (clock->failed || !make_event(clock))
			return;
	RUN(clock, cudaEventRecord(clock->events[moment], clock->stream));
}

static double seconds(void *arg, size_t from, size_t to)
{
	struct device_clock *clock = arg;
	float milliseconds = 0;
	if (from < clock->made && to < clock->made)
		RUN(clock, cudaEventElapsedTime(&milliseconds, clock->events[from], clock->events[to]));
	return (double)milliseconds * 1e-3;
}

struct device_clock *device_clock_create(struct device *device, struct err *err)
{
	struct device_clock *clock = calloc(1, sizeof *clock);
	if (!clock) {
		err_set(err, "trace: out of memory");
		return NULL;
	}
	clock->stream = cuda_of(device)->stream;
	return clock;
}

void device_clock_destroy(struct device_clock *clock)
{
	if (!clock)
		return;
	for (size_t i = 0; i < clock->made; i++)
		cudaEventDestroy(clock->events[i]);
	free(clock->events);
	free(clock);
}

struct trace_clock device_clock_of(struct device_clock *clock)
{
	return (struct trace_clock) { clock, record, seconds };
}

int device_clock_check(const struct device_clock *clock, struct err *err)
{
	if (clock->failed)
		*err = clock->err;
	return clock->failed ? -1 : 0;
}
