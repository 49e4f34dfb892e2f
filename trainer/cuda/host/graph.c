/* SPDX-License-Identifier: Apache-2.0 */
/* Captures what the training queues as a CUDA graph, and replays it in one call. Inside the graph,
 * places where gradients are ready are records of external events; the communicator's stream waits
 * for these outside of any graph. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "trainer/cuda/host/cuda.h"

/* Makes the graph's events. Without a communicator's stream nothing waits for them, so none are
 * needed. */
static bool make_events(struct device *device, int events)
{
	struct cuda *cuda = cuda_of(device);
	struct err err;
	if (!cuda->comm_stream || events <= cuda->graph_event_count)
		return true;
	void **more = realloc(cuda->graph_events, (size_t)events * sizeof *more);
	if (!more)
		return cuda_note(device, err_set(&err, "cuda: couldn't capture a graph: out of memory"),
			&err);
	cuda->graph_events = more;
	for (; cuda->graph_event_count < events; cuda->graph_event_count++) {
		cudaEvent_t event = NULL;
		if (!CUDA_RUN(device, cudaEventCreateWithFlags(&event, cudaEventDisableTiming)))
			return false;
		more[cuda->graph_event_count] = event;
	}
	return true;
}

/* Thread-local capture, since the communicator's thread goes on meanwhile and may make calls that a
 * capture forbids. */
static bool capture(struct device *device, int events)
{
	struct cuda *cuda = cuda_of(device);
	if (!cuda_begin(device) || !make_events(device, events))
		return false;
	cuda->spoilt = false;
	cuda->capturer = pthread_self();
	cuda->capturing =
		cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
	if (!cuda->capturing)
		cudaGetLastError(); /* or the next launch would report it */
	return cuda->capturing;
}

static void capture_event(struct device *device, int number)
{
	struct cuda *cuda = cuda_of(device);
	if (number < cuda->graph_event_count)
		CUDA_RUN(device,
			cudaEventRecordWithFlags(cuda->graph_events[number], cuda->stream,
				cudaEventRecordExternal));
}

static void *captured(struct device *device)
{
	struct cuda *cuda = cuda_of(device);
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t code = cudaStreamEndCapture(cuda->stream, &graph);
	if (code == cudaSuccess && !cuda->spoilt)
		code = cudaGraphInstantiateWithFlags(&exec, graph, 0);
	cuda->capturing = false;
	if (code != cudaSuccess)
		cudaGetLastError();
	if (graph)
		cudaGraphDestroy(graph);
	return code == cudaSuccess ? exec : NULL;
}

static void replay(struct device *device, void *graph)
{
	CUDA_RUN(device, cudaGraphLaunch(graph, cuda_of(device)->stream));
}

static void replayed_to(struct device *device, int number)
{
	cuda_of(device)->replayed_to = number + 1;
}

static void drop_graph(struct device *device, void *graph)
{
	cudaGraphExecDestroy(graph);
}

void cuda_graph_end(struct cuda *cuda)
{
	for (int i = 0; i < cuda->graph_event_count; i++)
		cudaEventDestroy(cuda->graph_events[i]);
	free(cuda->graph_events);
}

void cuda_graph_install(struct device *device)
{
	device->capture = capture;
	device->capture_event = capture_event;
	device->captured = captured;
	device->replay = replay;
	device->replayed_to = replayed_to;
	device->drop_graph = drop_graph;
}
