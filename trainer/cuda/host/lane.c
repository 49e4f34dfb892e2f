/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's lane: a stream of its own beside the training's, which runs ahead of it where both could. What orders the two
 * are the marks: the lane waits for the training's stream, never the other way round. */
#include <cuda_runtime_api.h>

#include "trainer/cuda/host/cuda.h"

#define GRAPH_MARK ((uint64_t)1 << 63) /* a place in a graph, and not one of the marks */

static __thread bool on_lane; /* this thread's ops are the communicator's */

struct cuda_lane *cuda_lane_of(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	return on_lane && cuda->communication.stream ? &cuda->communication : &cuda->training;
}

int cuda_lane_make(struct cuda_lane *lane, bool first, struct err *err)
{
	cudaStream_t stream = NULL;
	int least = 0, greatest = 0;
	if (CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest), err) < 0
		|| CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, first ? greatest : least), err) < 0)
		return -1;
	lane->stream = stream;
	return 0;
}

void cuda_lane_end(struct cuda_lane *lane)
{
	if (lane->stream)
		cudaStreamSynchronize(lane->stream);
	if (lane->stream)
		cudaStreamDestroy(lane->stream);
	*lane = (struct cuda_lane){ 0 };
}

static void *make_lane(struct ops *ops, struct err *err)
{
	struct cuda *cuda = cuda_of(ops);
	if (cuda->communication.stream)
		return cuda->communication.stream;
	for (int i = 0; i < CUDA_MARKS; i++) {
		cudaEvent_t event = NULL;
		if (CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err) < 0)
			return NULL;
		cuda->marks[i] = event;
	}
	return cuda_lane_make(&cuda->communication, true, err) < 0 ? NULL : cuda->communication.stream;
}

/* A mark whose event has another one by the time it is awaited: that one is behind it, and comes as well. */
static uint64_t mark(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	if (cuda->replayed_to)
		return GRAPH_MARK | (uint64_t)(cuda->replayed_to - 1);
	uint64_t number = cuda->marked++;
	if (cuda_begin(ops))
		CUDA_RUN(ops, cudaEventRecord(cuda->marks[number % CUDA_MARKS], cuda->training.stream));
	return number;
}

static void await(struct ops *ops, uint64_t number)
{
	struct cuda *cuda = cuda_of(ops);
	void *event = number & GRAPH_MARK ? cuda->graph_marks[number & ~GRAPH_MARK] : cuda->marks[number % CUDA_MARKS];
	on_lane = true;
	if (cuda_begin(ops))
		CUDA_RUN(ops, cudaStreamWaitEvent(cuda->communication.stream, event, cudaEventWaitDefault));
}

static int settled(struct ops *ops, struct err *err)
{
	cudaError_t code = cudaStreamQuery(cuda_of(ops)->communication.stream);
	if (code == cudaErrorNotReady)
		return 0;
	return cuda_check((int)code, "cudaStreamQuery(communication.stream)", __FILE__, __LINE__, err) < 0 || ops->check(ops, err) < 0 ? -1 : 1;
}

void cuda_lane_install(struct ops *ops)
{
	ops->lane = make_lane;
	ops->mark = mark;
	ops->await = await;
	ops->settled = settled;
}
