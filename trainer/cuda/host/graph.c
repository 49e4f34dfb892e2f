/* SPDX-License-Identifier: Apache-2.0 */
/* Captures what the training queues as a CUDA graph, and replays it in one call. Inside the graph,
 * places where gradients are ready are records of external events; the communicator's stream waits
 * for these outside of any graph. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "trainer/cuda/host/cuda.h"

/* Makes the events of the places; none are needed without a communicator's stream, since nothing
 * waits for them. */
static bool make_events(struct ops *ops, int events)
{
	struct cuda *cuda = cuda_of(ops);
	struct err err;
	if (!cuda->communication.stream || events <= cuda->graph_event_count)
		return true;
	void **more = realloc(cuda->graph_events, (size_t)events * sizeof *more);
	if (!more)
		return cuda_note(ops, err_set(&err, "cuda: couldn't capture a graph: out of memory"), &err);
	cuda->graph_events = more;
	for (; cuda->graph_event_count < events; cuda->graph_event_count++) {
		cudaEvent_t event = NULL;
		if (!CUDA_RUN(ops, cudaEventCreateWithFlags(&event, cudaEventDisableTiming)))
			return false;
		more[cuda->graph_event_count] = event;
	}
	return true;
}

/* Thread-local capture, since the communicator's thread goes on meanwhile and may make calls that a
 * capture forbids. */
static bool capture(struct ops *ops, int events)
{
	struct cuda *cuda = cuda_of(ops);
	if (!cuda_begin(ops) || !make_events(ops, events))
		return false;
	cuda->spoilt = false;
	cuda->capturer = pthread_self();
	cuda->capturing =
		cudaStreamBeginCapture(cuda->training.stream, cudaStreamCaptureModeThreadLocal)
		== cudaSuccess;
	if (!cuda->capturing)
		cudaGetLastError(); /* or the next launch would report it */
	return cuda->capturing;
}

static void capture_event(struct ops *ops, int number)
{
	struct cuda *cuda = cuda_of(ops);
	if (number < cuda->graph_event_count && cuda_begin(ops))
		CUDA_RUN(ops,
			cudaEventRecordWithFlags(cuda->graph_events[number], cuda->training.stream,
				cudaEventRecordExternal));
}

static void *captured(struct ops *ops)
{
	struct cuda *cuda = cuda_of(ops);
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t code = cudaStreamEndCapture(cuda->training.stream, &graph);
	if (code == cudaSuccess && !cuda->spoilt)
		code = cudaGraphInstantiateWithFlags(&exec, graph, 0);
	cuda->capturing = false;
	if (code != cudaSuccess)
		cudaGetLastError();
	if (graph)
		cudaGraphDestroy(graph);
	return code == cudaSuccess ? exec : NULL;
}

static void replay(struct ops *ops, void *graph)
{
	if (cuda_begin(ops))
		CUDA_RUN(ops, cudaGraphLaunch(graph, cuda_of(ops)->training.stream));
}

static void replayed_to(struct ops *ops, int number)
{
	cuda_of(ops)->replayed_to = number + 1;
}

static void drop_graph(struct ops *ops, void *graph)
{
	cudaGraphExecDestroy(graph);
}

void cuda_graph_end(struct cuda *cuda)
{
	for (int i = 0; i < cuda->graph_event_count; i++)
		cudaEventDestroy(cuda->graph_events[i]);
	free(cuda->graph_events);
}

void cuda_graph_install(struct ops *ops)
{
	ops->capture = capture;
	ops->capture_event = capture_event;
	ops->captured = captured;
	ops->replay = replay;
	ops->replayed_to = replayed_to;
	ops->drop_graph = drop_graph;
}
