/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's stream, beside the training's. It has the higher priority where both could
 * run. Only events order the two: the communicator's stream waits for the training's, never the
 * reverse. */
#include <cuda_runtime_api.h>

#include "trainer/cuda/host/cuda.h"

#define GRAPH_EVENT ((uint64_t)1 << 63) /* the number is that of an event in a graph */

static __thread bool on_comm_stream; /* this thread's work goes to the communicator's stream */

void *cuda_stream_of(struct device *device)
{
	struct cuda *cuda = cuda_of(device);
	return on_comm_stream && cuda->comm_stream ? cuda->comm_stream : cuda->stream;
}

int cuda_stream_make(void **stream, bool first, struct err *err)
{
	cudaStream_t made = NULL;
	int least = 0, greatest = 0;
	if (CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), err) < 0
		|| CUDA_CHECK(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
						  first ? greatest : least),
			   err)
			< 0)
		return -1;
	*stream = made;
	return 0;
}

void cuda_stream_end(void *stream)
{
	if (!stream)
		return;
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
}

static void *make_comm_stream(struct device *device, struct err *err)
{
	struct cuda *cuda = cuda_of(device);
	if (cuda->comm_stream)
		return cuda->comm_stream;
	for (int i = 0; i < CUDA_EVENTS; i++) {
		cudaEvent_t event = NULL;
		if (CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err) < 0)
			return NULL;
		cuda->events[i] = event;
	}
	return cuda_stream_make(&cuda->comm_stream, true, err) < 0 ? NULL : cuda->comm_stream;
}

/* If the event is recorded again before it is waited for, that is right, too: the later record
 * comes after the earlier one. */
static uint64_t record_event(struct device *device)
{
	struct cuda *cuda = cuda_of(device);
	if (cuda->replayed_to)
		return GRAPH_EVENT | (uint64_t)(cuda->replayed_to - 1);
	uint64_t number = cuda->recorded++;
	CUDA_RUN(device, cudaEventRecord(cuda->events[number % CUDA_EVENTS], cuda->stream));
	return number;
}

static void wait_event(struct device *device, uint64_t number)
{
	struct cuda *cuda = cuda_of(device);
	void *event = number & GRAPH_EVENT ? cuda->graph_events[number & ~GRAPH_EVENT]
									   : cuda->events[number % CUDA_EVENTS];
	on_comm_stream = true;
	CUDA_RUN(device, cudaStreamWaitEvent(cuda->comm_stream, event, cudaEventWaitDefault));
}

static int comm_stream_idle(struct device *device, struct err *err)
{
	cudaError_t code = cudaStreamQuery(cuda_of(device)->comm_stream);
	if (code == cudaErrorNotReady)
		return 0;
	return cuda_check((int)code, "cudaStreamQuery(comm_stream)", __FILE__, __LINE__, err) < 0
			|| cuda_first_error(device, err) < 0
		? -1
		: 1;
}

void cuda_comm_stream_install(struct device *device)
{
	device->comm_stream = make_comm_stream;
	device->record_event = record_event;
	device->wait_event = wait_event;
	device->comm_stream_idle = comm_stream_idle;
}
