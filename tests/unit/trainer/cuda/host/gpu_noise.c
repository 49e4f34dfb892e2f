/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/trainer/cuda/host/gpu_noise.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef HAVE_NCCL
#include <nccl.h>
#endif

#define AT_ONCE 4 /* rounds that are queued before one waits */

/* A stream with a thread that keeps it busy. */
struct comm_stream {
	cudaStream_t stream;
	pthread_t thread;
	char *device[2];
	atomic_size_t rounds;
};

struct gpu_noise {
	size_t bytes;
	atomic_bool stop;
	struct comm_stream copies, collectives;
	char *pinned;
	const char *missing;
#ifdef HAVE_NCCL
	ncclComm_t comm;
	ncclRedOp_t twice; /* a sum that isn't a mere copy even for one rank */
#endif
};

static void check(cudaError_t error, const char *what)
{
	if (error != cudaSuccess)
		fail_msg("couldn't %s for what runs beside: %s", what, cudaGetErrorString(error));
}

/* ---- copies ---- */

static void *copy(void *arg)
{
	struct gpu_noise *noise = arg;
	struct comm_stream *comm_stream = &noise->copies;
	bool well = cudaSetDevice(0) == cudaSuccess;
	while (well && !atomic_load(&noise->stop)) {
		for (int i = 0; well && i < AT_ONCE; i++)
			well = cudaMemcpyAsync(comm_stream->device[0], noise->pinned, noise->bytes,
					   cudaMemcpyHostToDevice, comm_stream->stream)
					== cudaSuccess
				&& cudaMemcpyAsync(noise->pinned, comm_stream->device[0], noise->bytes,
					   cudaMemcpyDeviceToHost, comm_stream->stream)
					== cudaSuccess;
		well = well && cudaStreamSynchronize(comm_stream->stream) == cudaSuccess;
		atomic_fetch_add(&comm_stream->rounds, well);
	}
	return NULL;
}

/* ---- collectives ---- */

#ifdef HAVE_NCCL

static struct {
	ncclResult_t (*get_unique_id)(ncclUniqueId *id);
	ncclResult_t (*init)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
	ncclResult_t (*destroy)(ncclComm_t comm);
	ncclResult_t (*make_sum)(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
		ncclScalarResidence_t residence, ncclComm_t comm);
	ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type,
		ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
	ncclResult_t (*send)(const void *from, size_t count, ncclDataType_t type, int peer,
		ncclComm_t comm, cudaStream_t stream);
	ncclResult_t (*receive)(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		cudaStream_t stream);
	ncclResult_t (*group_start)(void);
	ncclResult_t (*group_end)(void);
} nccl;

static bool load(void)
{
	const struct {
		const char *name;
		void *pointer;
	} symbols[] = {
		{ "ncclGetUniqueId", &nccl.get_unique_id },
		{ "ncclCommInitRank", &nccl.init },
		{ "ncclCommDestroy", &nccl.destroy },
		{ "ncclRedOpCreatePreMulSum", &nccl.make_sum },
		{ "ncclAllReduce", &nccl.all_reduce },
		{ "ncclSend", &nccl.send },
		{ "ncclRecv", &nccl.receive },
		{ "ncclGroupStart", &nccl.group_start },
		{ "ncclGroupEnd", &nccl.group_end },
	};
	void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; library && i < sizeof symbols / sizeof symbols[0]; i++) {
		void *symbol = dlsym(library, symbols[i].name);
		memcpy(symbols[i].pointer, &symbol, sizeof symbol);
		if (!symbol)
			return false;
	}
	return library != NULL;
}

static void *collect(void *arg)
{
	struct gpu_noise *noise = arg;
	struct comm_stream *comm_stream = &noise->collectives;
	size_t count = noise->bytes / sizeof(float);
	bool well = cudaSetDevice(0) == cudaSuccess;
	while (well && !atomic_load(&noise->stop)) {
		for (int i = 0; well && i < AT_ONCE; i++)
			well = nccl.all_reduce(comm_stream->device[0], comm_stream->device[1], count, ncclFloat,
					   noise->twice, noise->comm, comm_stream->stream)
					== ncclSuccess
				&& nccl.group_start() == ncclSuccess
				&& nccl.send(comm_stream->device[1], count, ncclFloat, 0, noise->comm,
					   comm_stream->stream)
					== ncclSuccess
				&& nccl.receive(comm_stream->device[0], count, ncclFloat, 0, noise->comm,
					   comm_stream->stream)
					== ncclSuccess
				&& nccl.group_end() == ncclSuccess;
		well = well && cudaStreamSynchronize(comm_stream->stream) == cudaSuccess;
		atomic_fetch_add(&comm_stream->rounds, well);
	}
	return NULL;
}

/* Whether there are collectives. */
static bool meet(struct gpu_noise *noise)
{
	ncclUniqueId id;
	float factor = 2;
	noise->missing = "the machine has no NCCL";
	if (!load())
		return false;
	noise->missing = NULL;
	if (nccl.get_unique_id(&id) != ncclSuccess || nccl.init(&noise->comm, 1, id, 0) != ncclSuccess
		|| nccl.make_sum(&noise->twice, &factor, ncclFloat, ncclScalarHostImmediate, noise->comm)
			!= ncclSuccess)
		fail_msg("couldn't make a communicator of one rank: NCCL_DEBUG=INFO shows more");
	return true;
}

static void part(struct gpu_noise *noise)
{
	if (noise->comm)
		nccl.destroy(noise->comm);
}

#else

static void *collect(void *arg)
{
	return arg;
}
static void part(struct gpu_noise *noise) {}

static bool meet(struct gpu_noise *noise)
{
	noise->missing = "this build has no NCCL";
	return false;
}

#endif

/* ---- life ---- */

static void start(struct gpu_noise *noise, struct comm_stream *comm_stream, void *(*run)(void *))
{
	check(cudaStreamCreateWithFlags(&comm_stream->stream, cudaStreamNonBlocking), "make a stream");
	for (int i = 0; i < 2; i++) {
		void *memory = NULL;
		check(cudaMalloc(&memory, noise->bytes), "allocate");
		check(cudaMemset(memory, 0, noise->bytes), "fill memory");
		comm_stream->device[i] = memory;
	}
	assert_int_equal(pthread_create(&comm_stream->thread, NULL, run, noise), 0);
}

static void stop(struct comm_stream *comm_stream)
{
	if (!comm_stream->stream)
		return;
	pthread_join(comm_stream->thread, NULL);
	cudaStreamDestroy(comm_stream->stream);
	cudaFree(comm_stream->device[0]);
	cudaFree(comm_stream->device[1]);
}

struct gpu_noise *gpu_noise_begin(size_t bytes, bool collectives)
{
	struct gpu_noise *noise = calloc(1, sizeof *noise);
	void *pinned = NULL;
	assert_non_null(noise);
	noise->bytes = bytes;
	noise->missing = "there is no GPU";
	check(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "allocate pinned memory");
	memset(pinned, 0, bytes);
	noise->pinned = pinned;
	start(noise, &noise->copies, copy);
	if (collectives && meet(noise))
		start(noise, &noise->collectives, collect);
	return noise;
}

void gpu_noise_end(struct gpu_noise *noise)
{
	atomic_store(&noise->stop, true);
	stop(&noise->copies);
	stop(&noise->collectives);
	part(noise);
	cudaFreeHost(noise->pinned);
	free(noise);
}

size_t gpu_noise_copies(struct gpu_noise *noise)
{
	return atomic_load(&noise->copies.rounds);
}
size_t gpu_noise_collectives(struct gpu_noise *noise)
{
	return atomic_load(&noise->collectives.rounds);
}
const char *gpu_noise_missing(const struct gpu_noise *noise)
{
	return noise->missing;
}
