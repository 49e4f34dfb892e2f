/* SPDX-License-Identifier: Apache-2.0 */
/* Copies out of the GPU on a stream of their own. An error here fails only a snapshot: it is
 * cleared, so that no launch finds it, and the training goes on unless the GPU itself is lost,
 * which it notices itself. */
#include "trainer/cuda/host/copy_stream.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "trainer/cuda/host/cuda.h"

struct transfer {
	cudaEvent_t begun;         /* on the training's stream */
	cudaEvent_t first, done;   /* before and after the copies */
	cudaEvent_t before, after; /* before and after the training's wait for the copies */
};

struct cuda_copy_stream {
	cudaStream_t stream;
	struct transfer transfers[DEVICE_TRANSFERS];
};

#define COPY_CHECK(call, err) side_check((int)(call), #call, __LINE__, err)

static int side_check(int code, const char *call, int line, struct err *err)
{
	if (code != cudaSuccess)
		cudaGetLastError(); /* or the next launch would report it */
	return cuda_check(code, call, __FILE__, line, err);
}

/* ---- life ---- */

static int make_transfer(struct transfer *transfer, struct err *err)
{
	cudaEvent_t *const timed[] = { &transfer->first, &transfer->done, &transfer->before,
		&transfer->after };
	if (COPY_CHECK(cudaEventCreateWithFlags(&transfer->begun, cudaEventDisableTiming), err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof timed / sizeof timed[0]; i++)
		if (COPY_CHECK(cudaEventCreate(timed[i]), err) < 0)
			return -1;
	return 0;
}

struct cuda_copy_stream *cuda_copy_stream_create(struct err *err)
{
	struct cuda_copy_stream *copy_stream = calloc(1, sizeof *copy_stream);
	if (!copy_stream) {
		err_set(err, "cuda: couldn't make the copy stream: out of memory");
		return NULL;
	}
	int rc =
		COPY_CHECK(cudaStreamCreateWithFlags(&copy_stream->stream, cudaStreamNonBlocking), err);
	for (int i = 0; rc == 0 && i < DEVICE_TRANSFERS; i++)
		rc = make_transfer(&copy_stream->transfers[i], err);
	if (rc == 0)
		return copy_stream;
	cuda_copy_stream_destroy(copy_stream);
	return NULL;
}

void cuda_copy_stream_destroy(struct cuda_copy_stream *copy_stream)
{
	if (!copy_stream)
		return;
	if (copy_stream->stream)
		cudaStreamSynchronize(copy_stream->stream);
	for (int i = 0; i < DEVICE_TRANSFERS; i++) {
		struct transfer *transfer = &copy_stream->transfers[i];
		cudaEvent_t const events[] = { transfer->begun, transfer->first, transfer->done,
			transfer->before, transfer->after };
		for (size_t k = 0; k < sizeof events / sizeof events[0]; k++)
			if (events[k])
				cudaEventDestroy(events[k]);
	}
	if (copy_stream->stream)
		cudaStreamDestroy(copy_stream->stream);
	free(copy_stream);
}

/* ---- memory ---- */

/* Each thread has its own current device in the runtime; and an error of the training's work fails
 * a snapshot, too. */
static int enter(struct device *device, struct err *err)
{
	return cuda_begin(device)               ? 0
		: cuda_first_error(device, err) < 0 ? -1
											: err_set(err, "cuda: the device can't be used");
}

static int pin(struct device *device, void *pages, size_t bytes, struct err *err)
{
	if (enter(device, err) < 0)
		return -1;
	cudaError_t code = cudaHostRegister(pages, bytes, cudaHostRegisterDefault);
	if (code == cudaSuccess)
		return 0;
	cudaGetLastError();
	/* cudaHostRegister lacks host memory, not the GPU's, so cuda_check's remedy would be wrong. */
	return err_set(err, "cudaHostRegister of %zu MB: %s (%s)", bytes >> 20,
		cudaGetErrorString(code), cudaGetErrorName(code));
}

static void unpin(struct device *device, void *pages)
{
	struct err ignored;
	if (enter(device, &ignored) == 0)
		COPY_CHECK(cudaHostUnregister(pages), &ignored);
}

static void *side_alloc(struct device *device, size_t bytes, struct err *err)
{
	void *memory = NULL;
	return enter(device, err) == 0
			&& COPY_CHECK(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), err) == 0
		? memory
		: NULL;
}

static void side_release(struct device *device, void *p)
{
	cudaFreeHost(p);
}

/* ---- copies ---- */

static struct cuda_copy_stream *copy_stream_of(struct device *device)
{
	return cuda_of(device)->copy_stream;
}

static int begin(struct device *device, int number, struct err *err)
{
	struct cuda_copy_stream *copy_stream = copy_stream_of(device);
	struct transfer *transfer = &copy_stream->transfers[number];
	if (enter(device, err) < 0
		|| COPY_CHECK(cudaEventRecord(transfer->begun, (cudaStream_t)cuda_of(device)->stream), err)
			< 0
		|| COPY_CHECK(cudaStreamWaitEvent(copy_stream->stream, transfer->begun, 0), err) < 0
		|| COPY_CHECK(cudaEventRecord(transfer->first, copy_stream->stream), err) < 0)
		return -1;
	return 0;
}

static int copy(struct device *device, void *pinned, const void *from, size_t bytes,
	struct err *err)
{
	return enter(device, err) < 0
		? -1
		: COPY_CHECK(cudaMemcpyAsync(pinned, from, bytes, cudaMemcpyDeviceToHost,
						 copy_stream_of(device)->stream),
			err);
}

static int end(struct device *device, int number, struct err *err)
{
	return enter(device, err) < 0
		? -1
		: COPY_CHECK(cudaEventRecord(copy_stream_of(device)->transfers[number].done,
						 copy_stream_of(device)->stream),
			err);
}

static int done(struct device *device, int number, struct err *err)
{
	if (enter(device, err) < 0)
		return -1;
	cudaError_t code = cudaEventQuery(copy_stream_of(device)->transfers[number].done);
	if (code == cudaErrorNotReady) {
		cudaGetLastError();
		return 0;
	}
	return side_check(code, "cudaEventQuery(done)", __LINE__, err) < 0 ? -1 : 1;
}

/* A transfer that is already done costs the training nothing. */
static int wait_transfer(struct device *device, int number, struct err *err)
{
	struct transfer *transfer = &copy_stream_of(device)->transfers[number];
	cudaStream_t stream = (cudaStream_t)cuda_of(device)->stream;
	int rc = done(device, number, err);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	if (COPY_CHECK(cudaEventRecord(transfer->before, stream), err) < 0
		|| COPY_CHECK(cudaStreamWaitEvent(stream, transfer->done, 0), err) < 0
		|| COPY_CHECK(cudaEventRecord(transfer->after, stream), err) < 0)
		return -1;
	return 1;
}

/* 0 where the training has not reached the wait yet: the copies are done, so there will be none. */
static double between(struct device *device, cudaEvent_t from, cudaEvent_t to)
{
	struct err ignored;
	float milliseconds = 0;
	if (enter(device, &ignored) < 0)
		return 0;
	cudaError_t code = cudaEventElapsedTime(&milliseconds, from, to);
	if (code != cudaSuccess)
		cudaGetLastError();
	return code == cudaSuccess ? (double)milliseconds * 1e-3 : 0;
}

static double waited(struct device *device, int number)
{
	const struct transfer *transfer = &copy_stream_of(device)->transfers[number];
	return between(device, transfer->before, transfer->after);
}

static double took(struct device *device, int number)
{
	const struct transfer *transfer = &copy_stream_of(device)->transfers[number];
	return between(device, transfer->first, transfer->done);
}

const struct copy_stream cuda_copy_stream = { .pin = pin,
	.unpin = unpin,
	.alloc = side_alloc,
	.release = side_release,
	.begin = begin,
	.copy = copy,
	.end = end,
	.done = done,
	.wait_transfer = wait_transfer,
	.waited = waited,
	.took = took };
