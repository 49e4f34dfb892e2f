/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's stream, beside the training's. It has the higher priority where both could
 * run. Only events order the two: the communicator's stream waits for the training's, never the
 * reverse. */
#include <cuda_runtime_api.h>

#include "trainer/cuda/host/cuda.h"

#define GRAPH_EVENT ((uint64_t)1 << 63) /* marks a place in a graph, and not one of the events */

static __thread bool on_comm_stream; /* this thread's ops go to the communicator's stream */

struct cuda_stream *cuda_stream_of(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	return on_comm_stream && cuda->communication.stream ? &cuda->communication : &cuda->training;
}

int cuda_stream_make(struct cuda_stream *comm_stream, bool first, struct err *err)
{
	cudaStream_t stream = NULL;
	int least = 0, greatest = 0;
	if (CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), err) < 0
		|| CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
						  first ? greatest : least),
			   err)
			< 0)
		return -1;
	comm_stream->stream = stream;
	return 0;
}

void cuda_stream_end(struct cuda_stream *comm_stream)
{
	if (comm_stream->stream)
		cudaStreamSynchronize(comm_stream->stream);
	if (comm_stream->stream)
		cudaStreamDestroy(comm_stream->stream);
	*comm_stream = (struct cuda_stream) { 0 };
}

static void *make_comm_stream(struct ops *ops, struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
	if (cuda->communication.stream)
		return cuda->communication.stream;
	for (int i = 0; i < CUDA_EVENTS; i++) {
		cudaEvent_t event = NULL;
		if (CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err) < 0)
			return NULL;
		cuda->events[i] = event;
	}
	return cuda_stream_make(&cuda->communication, true, err) < 0 ? NULL
																 : cuda->communication.stream;
}

/* If the event is recorded again before it is waited for, that is right, too: the later record
 * comes after the earlier one. */
static uint64_t record_event(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	if (cuda->replayed_to)
		return GRAPH_EVENT | (uint64_t)(cuda->replayed_to - 1);
	uint64_t number = cuda->recorded++;
	if (cuda_begin(ops))
		CUDA_RUN(ops, cudaEventRecord(cuda->events[number % CUDA_EVENTS], cuda->training.stream));
	return number;
}

static void wait_event(struct ops *ops, uint64_t number)
{
	struct cuda *cuda = cuda_of(ops);
	void *event = number & GRAPH_EVENT ? cuda->graph_events[number & ~GRAPH_EVENT]
									   : cuda->events[number % CUDA_EVENTS];
	on_comm_stream = true;
	if (cuda_begin(ops))
		CUDA_RUN(ops, cudaStreamWaitEvent(cuda->communication.stream, event, cudaEventWaitDefault));
}

static int settled(struct ops *ops, struct err *err)
{
	cudaError_t code = cudaStreamQuery(cuda_of(ops)->communication.stream);
	if (code == cudaErrorNotReady)
		return 0;
	return cuda_check((int)code, "cudaStreamQuery(communication.stream)", __FILE__, __LINE__, err)
				< 0
			|| ops->check(ops, err) < 0
		? -1
		: 1;
}

void cuda_stream_install(struct ops *ops)
{
	ops->comm_stream = make_comm_stream;
	ops->record_event = record_event;
	ops->wait_event = wait_event;
	ops->settled = settled;
}
