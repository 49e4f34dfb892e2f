/* SPDX-License-Identifier: Apache-2.0 */
/* Between any two ranks there is a pipe in each direction, in a file that rank 0 makes with the
 * unique id. A message is its size and its bytes. What is queued on a stream is a list of messages;
 * each look at it moves what can be moved. */
#include "tests/fakes/fake_nccl.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/bytes.h"
#include "tests/fakes/fake_stream.h"

#define PIPE_BYTES ((size_t)1 << 16)
#define RANKS_MOST 16

struct fake_nccl fake_nccl;

struct pipe {
	_Atomic uint64_t written, read;
	char bytes[PIPE_BYTES];
};

struct shared {
	atomic_int arrived;
	struct pipe pipes[]; /* [from · ranks + to] */
};

struct ncclComm {
	struct shared *shared;
	size_t bytes;
	int rank, size, users; /* itself and what is queued; under the streams' lock */
	bool aborted;
	ncclResult_t wrong; /* found by a message */
};

/* ---- pipes ---- */

static struct pipe *pipe_of(struct ncclComm *comm, int from, int to)
{
	return &comm->shared->pipes[(size_t)from * (size_t)comm->size + (size_t)to];
}

static size_t put(struct pipe *pipe, const char *from, size_t bytes)
{
	uint64_t written = atomic_load(&pipe->written),
			 room = PIPE_BYTES - (written - atomic_load(&pipe->read));
	size_t count = bytes < room ? bytes : room;
	for (size_t i = 0; i < count; i++)
		pipe->bytes[(written + i) % PIPE_BYTES] = from[i];
	atomic_store(&pipe->written, written + count);
	return count;
}

static size_t get(struct pipe *pipe, char *to, size_t bytes)
{
	uint64_t at = atomic_load(&pipe->read), there = atomic_load(&pipe->written) - at;
	size_t count = bytes < there ? bytes : there;
	for (size_t i = 0; i < count; i++)
		to[i] = pipe->bytes[(at + i) % PIPE_BYTES];
	atomic_store(&pipe->read, at + count);
	return count;
}

/* ---- what is queued ---- */

struct message {
	int peer;
	bool receive;
	char *buffer;
	uint64_t bytes, told; /* the second: what the peer says */
	uint64_t moved;       /* of the number of bytes, and then of these */
};

struct work {
	struct ncclComm *comm;
	int number;
	int count;
	struct message *messages;
	/* of a collective */
	const char *mine;
	char *to, *parts; /* parts: [ranks · bytes] to be summed; NULL: none */
	size_t bytes;
	ncclDataType_t type;
};

/* Moves what can be moved. */
static void move(struct ncclComm *comm, struct message *m)
{
	struct pipe *pipe =
		m->receive ? pipe_of(comm, m->peer, comm->rank) : pipe_of(comm, comm->rank, m->peer);
	size_t head = sizeof m->told;
	if (!m->receive)
		m->told = m->bytes;
	while (m->moved < head + m->bytes) {
		bool in_head = m->moved < head;
		char *at = in_head ? (char *)&m->told + m->moved : m->buffer + (m->moved - head);
		size_t left = (in_head ? head : head + m->bytes) - m->moved;
		size_t count = m->receive ? get(pipe, at, left) : put(pipe, at, left);
		m->moved += count;
		if (m->moved >= head && m->told != m->bytes) {
			comm->wrong = ncclInvalidUsage; /* the real one hangs, or writes where it may not */
			return;
		}
		if (count == 0)
			return;
	}
}

/* In the order of each pipe. */
static bool move_all(struct work *work)
{
	bool stuck[2][RANKS_MOST] = { { false } }, all = true;
	for (int i = 0; i < work->count; i++) {
		struct message *m = &work->messages[i];
		if (stuck[m->receive][m->peer])
			continue;
		move(work->comm, m);
		stuck[m->receive][m->peer] = m->moved < sizeof m->told + m->bytes;
		all = all && !stuck[m->receive][m->peer];
	}
	return all;
}

static float number(const struct work *work, int rank, size_t i)
{
	const char *part = work->parts + (size_t)rank * work->bytes;
	return work->type == ncclBfloat16
		? bytes_bf16_to_float(((const uint16_t *)(const void *)part)[i])
		: ((const float *)(const void *)part)[i];
}

static void sum(const struct work *work)
{
	bool narrow = work->type == ncclBfloat16;
	for (size_t i = 0; i < work->bytes / (narrow ? 2 : 4); i++) {
		float value = number(work, 0, i);
		for (int rank = 1; rank < work->comm->size; rank++) {
			value += number(work, rank, i);
			value = narrow ? bytes_bf16_to_float(bytes_float_to_bf16(value)) : value;
		}
		if (narrow)
			((uint16_t *)(void *)work->to)[i] = bytes_float_to_bf16(value);
		else
			((float *)(void *)work->to)[i] = value;
	}
}

static int step(void *arg)
{
	struct work *work = arg;
	if (work->comm->aborted)
		return 1;
	if ((fake_nccl.hang_at && work->number >= fake_nccl.hang_at) || !move_all(work)
		|| work->comm->wrong)
		return 0;
	if (work->mine) /* which may be its place already */
		memmove((work->parts ? work->parts : work->to) + (size_t)work->comm->rank * work->bytes,
			work->mine, work->bytes);
	if (work->parts)
		sum(work);
	return 1;
}

static void leave(struct ncclComm *comm)
{
	if (--comm->users > 0)
		return;
	munmap(comm->shared, comm->bytes);
	free(comm);
}

static void drop(void *arg)
{
	struct work *work = arg;
	leave(work->comm);
	free(work->messages);
	free(work->parts);
	free(work);
}

static ncclResult_t enqueue(struct work *work, cudaStream_t stream)
{
	fake_stream_lock();
	work->comm->users++;
	fake_stream_unlock();
	work->number = ++fake_nccl.calls;
	fake_stream_queue(stream, step, drop, work);
	return ncclInProgress;
}

static void add_message(struct work *work, int peer, bool receive, void *buffer, size_t bytes)
{
	work->messages = realloc(work->messages, ((size_t)work->count + 1) * sizeof *work->messages);
	work->messages[work->count++] =
		(struct message) { .peer = peer, .receive = receive, .buffer = buffer, .bytes = bytes };
}

static struct work *new_work(struct ncclComm *comm)
{
	struct work *work = calloc(1, sizeof *work);
	work->comm = comm;
	return work;
}

/* ---- groups ---- */

static __thread int depth;
static __thread struct work *group;
static __thread cudaStream_t group_stream;

static ncclResult_t group_start(void)
{
	depth++;
	return ncclSuccess;
}

static ncclResult_t group_end(void)
{
	struct work *work = group;
	if (depth == 0)
		return ncclInvalidUsage;
	if (--depth > 0 || !work)
		return ncclSuccess;
	group = NULL;
	return enqueue(work, group_stream);
}

static ncclResult_t add(void *buffer, size_t bytes, bool receive, int peer, ncclComm_t comm,
	cudaStream_t stream)
{
	if (peer < 0 || peer >= comm->size || !stream
		|| (group && (group->comm != comm || group_stream != stream)))
		return ncclInvalidArgument;
	group_start();
	if (!group)
		group = new_work(comm);
	group_stream = stream;
	add_message(group, peer, receive, buffer, bytes);
	return group_end();
}

static size_t size_of(ncclDataType_t type)
{
	return type == ncclChar ? 1 : type == ncclBfloat16 ? 2 : 4;
}

static ncclResult_t nccl_send(const void *buffer, size_t count, ncclDataType_t type, int peer,
	ncclComm_t comm, cudaStream_t stream)
{
	return add((void *)(uintptr_t)buffer, count * size_of(type), false, peer, comm, stream);
}

static ncclResult_t nccl_recv(void *buffer, size_t count, ncclDataType_t type, int peer,
	ncclComm_t comm, cudaStream_t stream)
{
	return add(buffer, count * size_of(type), true, peer, comm, stream);
}

/* Everyone's bytes to all others. */
static ncclResult_t spread(struct work *work, char *into, cudaStream_t stream)
{
	for (int peer = 0; peer < work->comm->size; peer++)
		if (peer != work->comm->rank) {
			add_message(work, peer, false, (char *)(uintptr_t)work->mine, work->bytes);
			add_message(work, peer, true, into + (size_t)peer * work->bytes, work->bytes);
		}
	return enqueue(work, stream);
}

static ncclResult_t all_gather(const void *mine, void *all, size_t count, ncclDataType_t type,
	ncclComm_t comm, cudaStream_t stream)
{
	struct work *work = new_work(comm);
	work->bytes = count * size_of(type);
	work->to = all;
	work->mine = mine;
	return spread(work, all, stream);
}

static ncclResult_t all_reduce(const void *from, void *to, size_t count, ncclDataType_t type,
	ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
	struct work *work = new_work(comm);
	if (op != ncclSum || (type != ncclFloat && type != ncclBfloat16)) {
		free(work);
		return ncclInvalidArgument;
	}
	work->type = type;
	work->bytes = count * size_of(type);
	work->mine = from;
	work->to = to;
	work->parts = malloc((size_t)comm->size * work->bytes + 1);
	return spread(work, work->parts, stream);
}

/* ---- life ---- */

static ncclResult_t get_version(int *version)
{
	*version = fake_nccl.version ? fake_nccl.version : 22809;
	return ncclSuccess;
}

static ncclResult_t get_unique_id(ncclUniqueId *id)
{
	const char *tmp = getenv("TMPDIR");
	memset(id, 0, sizeof *id);
	tmp = tmp ? tmp : "/tmp";
	snprintf(id->internal, sizeof id->internal, "%.90s/muster-fake-nccl-XXXXXX", tmp);
	int fd = mkstemp(id->internal);
	if (fd < 0)
		return ncclSystemError;
	close(fd);
	return ncclSuccess;
}

/* The last to arrive needs the name no more. */
static ncclResult_t init(ncclComm_t *out, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	struct ncclComm *comm = calloc(1, sizeof *comm);
	int fd = open(id.internal, O_RDWR | O_CLOEXEC);
	size_t bytes = sizeof(struct shared) + (size_t)size * (size_t)size * sizeof(struct pipe);
	if (!comm || fd < 0 || size > RANKS_MOST || config->blocking != 0
		|| ftruncate(fd, (off_t)bytes) < 0)
		return ncclSystemError;
	*comm = (struct ncclComm) { .bytes = bytes, .rank = rank, .size = size, .users = 1 };
	comm->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (comm->shared == MAP_FAILED)
		return ncclSystemError;
	if (atomic_fetch_add(&comm->shared->arrived, 1) + 1 == size)
		unlink(id.internal);
	fake_nccl.communicators++;
	*out = comm;
	return ncclInProgress;
}

static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *error)
{
	bool fails = fake_nccl.error_at && fake_nccl.calls >= fake_nccl.error_at;
	*error = fails                                         ? fake_nccl.error
		: comm->wrong                                      ? comm->wrong
		: atomic_load(&comm->shared->arrived) < comm->size ? ncclInProgress
														   : ncclSuccess;
	return ncclSuccess;
}

/* What is queued ends when the stream comes to it. */
static ncclResult_t end(ncclComm_t comm)
{
	fake_stream_lock();
	comm->aborted = true;
	leave(comm);
	fake_stream_unlock();
	fake_stream_pump();
	fake_nccl.communicators--;
	return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm)
{
	fake_nccl.finalized++;
	return ncclSuccess;
}

static ncclResult_t end_at_once(ncclComm_t comm)
{
	fake_nccl.aborted++;
	return end(comm);
}

static const char *get_error_string(ncclResult_t result)
{
	return result == ncclInvalidUsage ? "invalid usage"
		: result == ncclRemoteError   ? "remote process exited"
									  : "system error";
}

static const char *get_last_error(ncclComm_t comm)
{
	return "what NCCL says";
}
static int count_gpus(struct err *err)
{
	return !fake_nccl.no_gpu;
}
static int stream_ended(void *stream, struct err *err)
{
	return fake_stream_ended(stream);
}

const struct nccl_library fake_nccl_library = { get_version, get_unique_id, init, get_async_error,
	finalize, end, end_at_once, group_start, group_end, nccl_send, nccl_recv, all_gather,
	all_reduce, get_error_string, get_last_error, count_gpus, stream_ended };

const struct nccl_library *nccl_library_load(struct err *err)
{
	return &fake_nccl_library;
}
