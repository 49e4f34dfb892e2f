/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/fakes/fake_runtime.h"

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fakes/fake_pinned.h"
#include "tests/shim/grid.h"

#define HEAD 256                 /* bytes in front of memory */
#define LARGE ((size_t)16 << 20) /* bytes; filling as many takes longer than most tests */

struct fake_runtime fake_runtime;

/* ---- memory ---- */

struct head {
	struct head *next;
	size_t bytes;
	enum cudaMemoryType kind;
};

_Static_assert(sizeof(struct head) <= HEAD, "a head has its place in front of memory");

static struct head *heads;

static void *memory_of(struct head *head)
{
	return (char *)head + HEAD;
}

/* Holds no number at first; large memory holds anything, as on the device. */
static void *get(size_t bytes, enum cudaMemoryType kind)
{
	struct head *head = aligned_alloc(HEAD, HEAD + (bytes + HEAD - 1) / HEAD * HEAD);
	if (bytes < LARGE)
		memset(memory_of(head), 0xff, bytes);
	fake_stream_lock();
	*head = (struct head) { heads, bytes, kind };
	heads = head;
	fake_runtime.used += bytes;
	fake_runtime.pinned += kind == cudaMemoryTypeHost ? bytes : 0;
	fake_runtime.allocations++;
	fake_runtime.peak =
		fake_runtime.used > fake_runtime.peak ? fake_runtime.used : fake_runtime.peak;
	fake_stream_unlock();
	return memory_of(head);
}

/* As on the device, it is not given back before all that is queued has ended. */
static void give_back(void *p)
{
	struct head *head = p ? (struct head *)(void *)((char *)p - HEAD) : NULL, **link = &heads;
	if (!head)
		return;
	fake_stream_wait(NULL);
	fake_stream_lock();
	while (*link != head)
		link = &(*link)->next;
	*link = head->next;
	fake_runtime.used -= head->bytes;
	fake_runtime.pinned -= head->kind == cudaMemoryTypeHost ? head->bytes : 0;
	fake_stream_unlock();
	free(head);
}

static enum cudaMemoryType kind_of(const void *p)
{
	enum cudaMemoryType kind = cudaMemoryTypeUnregistered;
	fake_stream_lock();
	for (struct head *head = heads; head; head = head->next)
		if ((const char *)p >= (char *)memory_of(head)
			&& (const char *)p < (char *)memory_of(head) + head->bytes)
			kind = head->kind;
	fake_stream_unlock();
	if (kind == cudaMemoryTypeUnregistered && fake_pinned_has(p, 1))
		kind = cudaMemoryTypeHost;
	return kind;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
	if (fake_runtime.most
		&& fake_runtime.used - fake_runtime.pinned + bytes > fake_runtime.most - fake_runtime.taken)
		return cudaErrorMemoryAllocation;
	*p = get(bytes, cudaMemoryTypeDevice);
	return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
	give_back(p);
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	*p = get(bytes, cudaMemoryTypeHost);
	return flags == cudaHostAllocDefault ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaFreeHost(void *p)
{
	return cudaFree(p);
}

/* Gives the whole pages of large memory back to the kernel, which makes zeros of those that are
 * touched again. */
static void zero_large(char *p, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	size_t head = (size_t)(-(uintptr_t)p % page), tail = (size_t)((uintptr_t)(p + bytes) % page);
	memset(p, 0, head);
	memset(p + bytes - tail, 0, tail);
	if (madvise(p + head, bytes - head - tail, MADV_DONTNEED) < 0)
		memset(p, 0, bytes);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
	if (value == 0 && bytes >= LARGE)
		zero_large(p, bytes);
	else
		memset(p, value, bytes);
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all)
{
	static bool looked;
	*all = fake_runtime.most ? fake_runtime.most : (size_t)1 << 40;
	*available =
		*all - (fake_runtime.used - fake_runtime.pinned) - (looked ? fake_runtime.taken : 0);
	looked = true;
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
	*attributes = (struct cudaPointerAttributes) { .type = kind_of(p) };
	return cudaSuccess;
}

/* ---- failures ---- */

static int failed; /* cudaError_t of what ran late; after it nothing runs */

/* Whether the next kernel or copy of a stream does what it should. */
static bool runs(void)
{
	fake_runtime.works++;
	if (!failed && fake_runtime.fail_at && fake_runtime.works >= fake_runtime.fail_at)
		failed = fake_runtime.failure;
	return !failed;
}

/* ---- copies ---- */

struct copying {
	void *to;
	const void *from;
	void *snapshot; /* what `from` is, where the runtime has taken it over; else NULL */
	size_t bytes;
};

static int copy(void *arg)
{
	const struct copying *c = arg;
	fake_runtime.now += fake_runtime.copy_time;
	if (fake_runtime.copies_fail_late && !failed)
		failed = fake_runtime.copies_fail_late;
	if (runs())
		memcpy(c->to, c->from, c->bytes);
	return 1;
}

static void drop_copy(void *arg)
{
	struct copying *c = arg;
	free(c->snapshot);
	free(c);
}

/* Pinned memory is read and written when the stream comes to it. Other memory of the host is read
 * at the call, and written before the call returns. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
	cudaStream_t stream)
{
	struct copying *c = malloc(sizeof *c);
	bool in = kind == cudaMemcpyHostToDevice, out = kind == cudaMemcpyDeviceToHost;
	int failure = failed ? failed : fake_runtime.copies_fail;
	if (failure || !stream || !(in || out || kind == cudaMemcpyDeviceToDevice)) {
		free(c);
		return failure ? (cudaError_t)failure : cudaErrorInvalidValue;
	}
	*c = (struct copying) { to, from, NULL, bytes };
	if (in && kind_of(from) == cudaMemoryTypeUnregistered) {
		c->from = c->snapshot = malloc(bytes + 1);
		memcpy(c->snapshot, from, bytes);
	}
	bool waits = out && kind_of(to) == cudaMemoryTypeUnregistered;
	if ((c->snapshot || waits) && fake_stream_captures(stream)) {
		fake_stream_spoil(stream);
		drop_copy(c);
		return cudaErrorStreamCaptureUnsupported;
	}
	fake_stream_queue(stream, copy, drop_copy, c);
	if (waits)
		fake_stream_wait(stream);
	return (cudaError_t)failed;
}

struct setting {
	void *at;
	int value;
	size_t bytes;
};

static int set(void *arg)
{
	const struct setting *s = arg;
	memset(s->at, s->value, s->bytes);
	return 1;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
	struct setting *s = malloc(sizeof *s);
	*s = (struct setting) { p, value, bytes };
	fake_stream_queue(stream, set, free, s);
	return stream ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- kernels ---- */

static int run_kernel(void *arg)
{
	if (runs())
		failed = grid_run(arg);
	return 1;
}

static void drop_kernel(void *arg)
{
	grid_drop(arg);
}

static int take_launch(void *stream, struct grid_call *call)
{
	fake_stream_queue(stream, run_kernel, drop_kernel, call);
	return failed;
}

__attribute__((constructor)) static void take_launches(void)
{
	grid_queue(take_launch);
}

/* ---- streams and events ---- */

static cudaError_t create(cudaStream_t *stream)
{
	*stream = fake_stream_create();
	fake_runtime.streams++;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
	return flags == cudaStreamNonBlocking ? create(stream) : cudaErrorInvalidValue;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
	return flags == cudaStreamNonBlocking && priority <= 0 && priority >= -5
		? create(stream)
		: cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	fake_stream_destroy(stream);
	fake_runtime.streams--;
	return cudaSuccess;
}

static cudaError_t outcome(bool ended)
{
	return failed ? (cudaError_t)failed : ended ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	fake_runtime.waits++;
	if (!stream)
		return cudaErrorInvalidValue;
	if (fake_stream_captures(stream)) {
		fake_stream_spoil(stream);
		return cudaErrorStreamCaptureUnsupported;
	}
	fake_stream_wait(stream);
	return outcome(true);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	return stream ? outcome(fake_stream_ended(stream)) : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceSynchronize(void)
{
	fake_stream_wait(NULL);
	return outcome(true);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	*event = fake_event_create();
	fake_runtime.events++;
	return flags == cudaEventDisableTiming ? cudaSuccess : cudaErrorInvalidValue;
}

#define NOT_REACHED -1.0 /* the moment of an event that keeps time */

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	cudaError_t code = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
	*fake_event_moment(*event) = NOT_REACHED;
	return code;
}

static int note_moment(void *event)
{
	*fake_event_moment(event) = fake_runtime.now + 1;
	return 1;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
	double from = *fake_event_moment(begin), to = *fake_event_moment(end);
	*milliseconds = (float)(to - from);
	return from == 0 || to == 0 ? cudaErrorInvalidResourceHandle
		: from < 0 || to < 0    ? cudaErrorNotReady
								: cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	fake_event_destroy(event);
	fake_runtime.events--;
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	if (failed)
		return (cudaError_t)failed;
	if (fake_stream_captures(
			stream)) /* it joins streams within the graph, and is nothing to others */
		return cudaSuccess;
	if (*fake_event_moment(event) != 0)
		fake_stream_queue(stream, note_moment, NULL, event);
	fake_event_record(event, stream);
	return stream ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	if (__atomic_load_n(&fake_runtime.unready, __ATOMIC_ACQUIRE) > 0) {
		__atomic_sub_fetch(&fake_runtime.unready, 1, __ATOMIC_ACQ_REL);
		return cudaErrorNotReady;
	}
	return outcome(fake_event_ended(event));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	fake_runtime.waits++;
	fake_event_wait(event);
	return outcome(true);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	if (fake_runtime.waits_fail)
		return (cudaError_t)fake_runtime.waits_fail;
	fake_runtime.awaits++;
	if (!fake_runtime.deaf)
		fake_event_await(event, stream);
	return stream && flags == cudaEventWaitDefault ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaSetDevice(int device)
{
	return device < (fake_runtime.devices ? fake_runtime.devices : 1) ? cudaSuccess
																	  : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
	*value = 1000;
	return attribute == cudaDevAttrL2CacheSize && cudaSetDevice(device) == cudaSuccess
		? cudaSuccess
		: cudaErrorInvalidValue;
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorLaunchFailure ? "unspecified launch failure" : "an error";
}
const char *cudaGetErrorName(cudaError_t error)
{
	return error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure" : "cudaErrorFake";
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	if (!stream || fake_stream_captures(stream) || mode != cudaStreamCaptureModeThreadLocal)
		return cudaErrorInvalidValue;
	fake_stream_capture(stream);
	return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
	if (flags != cudaEventRecordExternal || !fake_stream_captures(stream))
		return cudaErrorInvalidValue;
	fake_event_record(event, stream);
	return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
	*graph = fake_stream_captures(stream) ? fake_stream_captured(stream) : NULL;
	fake_runtime.graphs += *graph != NULL;
	return *graph ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
}

/* The one is the other: it lives as long as both. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
	unsigned long long flags)
{
	*exec = (cudaGraphExec_t)(void *)graph;
	return graph && flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
	return graph ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
	fake_graph_destroy(exec);
	fake_runtime.graphs--;
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	if (!exec || !stream)
		return cudaErrorInvalidValue;
	fake_runtime.replays++;
	fake_graph_launch(exec, stream);
	return (cudaError_t)failed;
}

void fake_runtime_reset(void)
{
	fake_stream_order(FAKE_EAGER, 0);
	fake_runtime = (struct fake_runtime) { 0 };
	failed = 0;
}
