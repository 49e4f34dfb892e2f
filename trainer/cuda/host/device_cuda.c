/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the GPU's table of a device: its memory and the copies on the training's stream; other
 * files have the other streams and the graphs. */
#include "trainer/cuda/host/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/cuda/host/copy_stream.h"
#include "trainer/cuda/host/cuda.h"

int device_cuda_runtime(void)
{
	return CUDART_VERSION;
}

int device_cuda_begin(const struct gpu *gpu, uint64_t *available, struct err *err)
{
	size_t unused = 0, all = 0;
	if (CUDA_CHECK(cudaSetDevice(gpu->index), err) < 0
		|| CUDA_CHECK(cudaMemGetInfo(&unused, &all), err) < 0)
		return -1;
	*available = unused;
	return 0;
}

/* ---- memory ---- */

static void *alloc(struct device *device, size_t bytes)
{
	struct err err;
	if (!cuda_begin(device))
		return NULL;
	void *memory = cuda_check_alloc(bytes, "the arenas of the training", &err);
	cuda_note(device, memory ? 0 : -1, &err);
	return memory;
}

static void release(struct device *device, void *p)
{
	cudaFree(p);
}

static void copy(struct device *device, void *to, const void *from, size_t bytes,
	enum cudaMemcpyKind kind)
{
	struct cuda *cuda = cuda_of(device);
	if (CUDA_RUN(device, cudaMemcpyAsync(to, from, bytes, kind, cuda->stream)))
		CUDA_RUN(device, cudaStreamSynchronize(cuda->stream));
}

static void copy_in(struct device *device, void *to, const void *host, size_t bytes)
{
	copy(device, to, host, bytes, cudaMemcpyHostToDevice);
}

static void copy_out(struct device *device, void *host, const void *from, size_t bytes)
{
	copy(device, host, from, bytes, cudaMemcpyDeviceToHost);
}

/* Copies through pinned memory. Waiting for a place that is still in use costs nothing, since the
 * host is then that far ahead of the device. */
static bool put_part(struct device *device, char *to, const char *host, size_t bytes)
{
	struct cuda *cuda = cuda_of(device);
	unsigned int at = cuda->put_next++ % CUDA_PUTS;
	char *place = cuda->puts + at * CUDA_PUT_BYTES;
	cudaEvent_t left = (cudaEvent_t)cuda->put_events[at];
	if (cudaEventQuery(left) == cudaErrorNotReady && !CUDA_RUN(device, cudaEventSynchronize(left)))
		return false;
	memcpy(place, host, bytes);
	return CUDA_RUN(device, cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, cuda->stream))
		&& CUDA_RUN(device, cudaEventRecord(left, cuda->stream));
}

static void put(struct device *device, void *to, const void *host, size_t bytes)
{
	bool well = cuda_begin(device);
	for (size_t at = 0; well && at < bytes; at += CUDA_PUT_BYTES)
		well = put_part(device, (char *)to + at, (const char *)host + at,
			bytes - at < CUDA_PUT_BYTES ? bytes - at : CUDA_PUT_BYTES);
}

/* ---- life ---- */

static int begin(struct cuda *cuda, struct err *err)
{
	void *puts = NULL;
	if (cuda_stream_make(&cuda->stream, false, err) < 0
		|| CUDA_CHECK(cudaHostAlloc(&puts, CUDA_PUTS * CUDA_PUT_BYTES, cudaHostAllocDefault), err)
			< 0)
		return -1;
	cuda->puts = puts;
	for (int i = 0; i < CUDA_PUTS; i++) {
		cudaEvent_t event = NULL;
		if (CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), err) < 0)
			return -1;
		cuda->put_events[i] = event;
	}
	cuda->copy_stream = cuda_copy_stream_create(err);
	return cuda->copy_stream ? 0 : -1;
}

static const struct device table = { .alloc = alloc,
	.release = release,
	.copy_in = copy_in,
	.copy_out = copy_out,
	.put = put,
	.copy_stream = &cuda_copy_stream,
	.check = cuda_first_error };

struct device *device_cuda_create(const struct gpu *gpu, struct err *err)
{
	struct cuda *cuda = calloc(1, sizeof *cuda);
	if (!cuda) {
		err_set(err, "cuda: couldn't make the device: out of memory");
		return NULL;
	}
	struct device *device = &cuda->device;
	*device = table;
	device->state = cuda;
	device->card = cuda->card;
	snprintf(cuda->card, sizeof cuda->card, "%s, %d multiprocessors", gpu->name, gpu->processors);
	cuda->number = gpu->index;
	pthread_mutex_init(&cuda->lock, NULL);
	cuda_comm_stream_install(device);
	cuda_graph_install(device);
	if (begin(cuda, err) == 0)
		return device;
	device_cuda_destroy(device);
	return NULL;
}

void device_cuda_destroy(struct device *device)
{
	if (!device)
		return;
	struct cuda *cuda = cuda_of(device);
	cuda_copy_stream_destroy(cuda->copy_stream);
	cuda_stream_end(cuda->comm_stream);
	cuda_stream_end(cuda->stream);
	cuda_graph_end(cuda);
	cudaFreeHost(cuda->puts);
	for (int i = 0; i < CUDA_PUTS; i++)
		if (cuda->put_events[i])
			cudaEventDestroy((cudaEvent_t)cuda->put_events[i]);
	for (int i = 0; i < CUDA_EVENTS; i++)
		if (cuda->events[i])
			cudaEventDestroy(cuda->events[i]);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda);
}
