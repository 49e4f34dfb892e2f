/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, the CUDA driver and its runtime as far as slurm-examples/ring.c and libmuster call them,
 * for machines without a GPU: one library that tests/nccl.bats gives all three names. "GPU memory"
 * is the process's; a gather travels through files in $FAKE_DIR, one a rank and round. The
 * environment says what goes wrong, in rank $FAKE_RANK alone where that is set:
 *     FAKE_ID=fail                 no unique id can be made
 *     FAKE_INIT=slow|never|fail    connecting takes a while, never ends, ends with ncclInvalidUsage
 *     FAKE_GATHER=never|lost       a gather never ends, or NCCL finds that it never can
 * A line on standard error tells what ends a communicator. */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_LOOKS 5
#define NOT_READY 600 /* CUDA_ERROR_NOT_READY */

struct ncclComm {
	int rank, size, looks, round;
	ncclResult_t becomes; /* of the call in flight, after the looks */
	const void *mine;     /* of the gather on the stream; NULL: none */
	char *all;
	size_t bytes;
};

static struct ncclComm *current; /* whose gather the stream has */

/* Whether this rank is to do `what`. */
static int scripted(const char *name, const char *what)
{
	const char *odd = getenv("FAKE_RANK"), *rank = getenv("RANK"), *value = getenv(name);
	return value && strcmp(value, what) == 0 && (!odd || (rank && strcmp(odd, rank) == 0));
}

/* ---- NCCL ---- */

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	memset(id, 0x5a, sizeof *id);
	return scripted("FAKE_ID", "fail") ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
	ncclConfig_t *config)
{
	struct ncclComm *comm = calloc(1, sizeof *comm);
	if (!comm || config->blocking != 0 || id.internal[5] != 0x5a)
		return ncclInvalidArgument;
	comm->rank = rank;
	comm->size = size;
	comm->looks = scripted("FAKE_INIT", "slow") ? SLOW_LOOKS : 0;
	comm->becomes = scripted("FAKE_INIT", "never") ? ncclInProgress
		: scripted("FAKE_INIT", "fail")            ? ncclInvalidUsage
												   : ncclSuccess;
	*out = comm;
	return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
	*error = comm->looks > 0 ? ncclInProgress : comm->becomes;
	comm->looks -= comm->looks > 0;
	return ncclSuccess;
}

#ifndef FAKE_OLD
ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	comm->looks = SLOW_LOOKS;
	return ncclInProgress;
}
#endif

static ncclResult_t end(struct ncclComm *comm, const char *how)
{
	fprintf(stderr, "fake: %s\n", how);
	if (current == comm)
		current = NULL;
	free(comm);
	return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	return end(comm, comm->looks ? "destroyed before the end" : "destroyed");
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	return end(comm, "aborted");
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclInvalidUsage ? "invalid usage"
		: result == ncclRemoteError   ? "remote process exited"
									  : "system error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	return comm ? "fake words" : "fake words of no communicator";
}

ncclResult_t ncclAllGather(const void *mine, void *all, size_t count, ncclDataType_t type,
	ncclComm_t comm, cudaStream_t stream)
{
	if (type != ncclInt64 || stream || comm->mine)
		return ncclInvalidArgument;
	comm->mine = mine;
	comm->all = all;
	comm->bytes = count * 8;
	comm->round++;
	comm->looks = 2;
	comm->becomes = scripted("FAKE_GATHER", "lost") ? ncclRemoteError : ncclSuccess;
	current = comm;
	return ncclInProgress;
}

/* Of muster-train's communicator: libmuster finds them, and calls none. */
#define NEVER(name, ...) \
	ncclResult_t name(__VA_ARGS__) \
	{ \
		return ncclInvalidUsage; \
	}
NEVER(ncclGroupStart, void)
NEVER(ncclGroupEnd, void)
NEVER(ncclSend, const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
NEVER(ncclRecv, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
NEVER(ncclAllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
	cudaStream_t)

/* ---- the driver ---- */

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuStreamQuery(void *stream);

int cuInit(unsigned flags)
{
	return flags ? 1 : 0;
}

int cuDeviceGetCount(int *count)
{
	*count = 1;
	return 0;
}

static void part_name(char *name, size_t size, const struct ncclComm *comm, int rank)
{
	snprintf(name, size, "%s/round-%d.%d", getenv("FAKE_DIR"), comm->round, rank);
}

static int give(const struct ncclComm *comm)
{
	char name[4096], part[4100];
	part_name(name, sizeof name, comm, comm->rank);
	snprintf(part, sizeof part, "%s.new", name);
	FILE *file = access(name, F_OK) == 0 ? NULL : fopen(part, "w");
	return file
			&& (fwrite(comm->mine, comm->bytes, 1, file) != 1 || fclose(file) || rename(part, name))
		? -1
		: 0;
}

static int take(const struct ncclComm *comm, int rank)
{
	char name[4096];
	part_name(name, sizeof name, comm, rank);
	FILE *file = fopen(name, "r");
	size_t got = file ? fread(comm->all + (size_t)rank * comm->bytes, comm->bytes, 1, file) : 0;
	if (file)
		fclose(file);
	return got == 1 ? 0 : -1;
}

/* The stream's work is done by the thread that looks. */
int cuStreamQuery(void *stream)
{
	if (stream)
		return 1;
	if (!current || !current->mine)
		return 0;
	if (scripted("FAKE_GATHER", "never") || give(current) < 0)
		return NOT_READY;
	for (int rank = 0; rank < current->size; rank++)
		if (take(current, rank) < 0)
			return NOT_READY;
	current->mine = NULL;
	return 0;
}

/* ---- the runtime ---- */

cudaError_t cudaMalloc(void **memory, size_t size)
{
	return (*memory = malloc(size)) ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Waits for the stream, as the real one does. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind)
{
	while (cuStreamQuery(NULL) == NOT_READY)
		usleep(1000);
	memcpy(to, from, size);
	return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToHost ? cudaSuccess
																			: cudaErrorInvalidValue;
}
