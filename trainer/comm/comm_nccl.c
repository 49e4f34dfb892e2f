/* SPDX-License-Identifier: Apache-2.0 */
/* The provider over NCCL. Device memory travels by NCCL, on the stream on which the ops of the
 * communicator's thread are queued. Host memory travels by TCP, whose connections also tell which
 * rank is gone and why, and carry the last words: NCCL has nothing for that.
 *
 * NCCL's communicator is non-blocking, and after open only the communicator's thread calls it. It
 * polls an unfinished call, and the stream, until the end, an error, or an interrupt. The abort is
 * in leave(). */
#include "config.h"

#include "trainer/comm/comm_nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "launch/nccl_bootstrap.h"
#include "launch/nccl_library.h"
#include "trainer/cuda/host/check.h"
#include "trainer/cuda/kernels/elements.h"

#define FIRST_LOOK 1e-5 /* seconds; the pause between looks grows from this to LONGEST_LOOK */
#define LONGEST_LOOK 5e-4
#define BLAME_SECONDS \
	1.0 /* for the TCP connections to tell which rank is gone, when NCCL reports an error */
#define END_SECONDS 5.0
#define CAST_ELEMENTS ((size_t)8 << 20) /* elements that are rounded to bf16 and travel at once */

/* Lives from its begin to its finish; transfers and sums belong to the operation, which lives as
 * long. */
struct exchange {
	struct exchange *next; /* list of all that were ever made, for reuse */
	bool used;
	const struct comm_transfer *transfers;
	int count;
	const struct comm_sums *sums;
	bool on_device;
	void *host;               /* TCP's exchange, once it has begun */
	cudaEvent_t begun, ended; /* recorded on the stream */
	bool failed;
	struct err err; /* of a failed begin */
};

struct state {
	void *host; /* TCP's state */
	struct comm_events events;
	const struct nccl_library *lib;
	ncclComm_t comm;
	cudaStream_t stream; /* NULL: nothing is attached, so all memory is the host's */
	atomic_bool interrupted;
	char text[40];                      /* "NCCL 2.28.9" */
	void *bf16;                         /* bf16 [CAST_ELEMENTS]; NULL until it is needed */
	struct exchange *exchanges, broken; /* `broken`: there was no memory for another */
};

/* ---- calls of NCCL ---- */

static int stopped(struct err *err)
{
	return err_fail(err, EXIT_LOST, "waiting for the other ranks");
}

/* Sleeps for a pause that grows with each call. False when interrupted. */
static bool pause_for(struct state *s, double *pause)
{
	deadline_sleep(deadline_in(1), *pause);
	*pause = *pause * 2 < LONGEST_LOOK ? *pause * 2 : LONGEST_LOOK;
	return !atomic_load(&s->interrupted);
}

/* NCCL has failed: the connections may know which rank caused it. */
static int explain(struct state *s, ncclResult_t result, const char *call, const char *file,
	int line, struct err *err)
{
	bool own = result == ncclInvalidArgument || result == ncclInvalidUsage
		|| result == ncclUnhandledCudaError;
	struct deadline deadline = deadline_in(own ? 0 : BLAME_SECONDS);
	char words[400];
	do {
		if (comm_tcp.check(s->host, err) < 0)
			return -1;
	} while (deadline_sleep(deadline, 0.02));
	snprintf(words, sizeof words, "%s (%.300s)", s->lib->get_error_string(result),
		s->lib->get_last_error(s->comm));
	cuda_check_words("nccl", (int)result, words, call, file, line, err);
	if (result == ncclRemoteError || result == ncclSystemError) /* a rank failed, or its network */
		err->status = EXIT_LOST;
	return -1;
}

/* Waits until NCCL has taken a call that it reports as in progress. */
static int nccl_check(struct state *s, ncclResult_t result, const char *call, const char *file,
	int line, struct err *err)
{
	double pause = FIRST_LOOK;
	while (result == ncclInProgress) {
		ncclResult_t asked = s->lib->get_async_error(s->comm, &result);
		if (asked != ncclSuccess)
			result = asked;
		if (result == ncclInProgress && !pause_for(s, &pause))
			return stopped(err);
	}
	return result == ncclSuccess ? 0 : explain(s, result, call, file, line, err);
}

#define NCCL_CHECK(s, call, err) nccl_check(s, (s)->lib->call, #call, __FILE__, __LINE__, err)

/* Only queues: within a group, NCCL starts nothing before the group's end. */
static int add_transfer(struct state *s, const struct comm_transfer *t, struct err *err)
{
	return t->receive
		? NCCL_CHECK(s, recv(t->buffer, t->bytes, ncclChar, t->peer, s->comm, s->stream), err)
		: NCCL_CHECK(s, send(t->buffer, t->bytes, ncclChar, t->peer, s->comm, s->stream), err);
}

static int queue_transfers(struct state *s, const struct comm_transfer *transfers, int count,
	struct err *err)
{
	struct err ignored;
	if (count == 0)
		return 0;
	if (NCCL_CHECK(s, group_start(), err) < 0)
		return -1;
	for (int i = 0; i < count; i++)
		if (add_transfer(s, &transfers[i], err) < 0) {
			(void)NCCL_CHECK(s, group_end(), &ignored);
			return -1;
		}
	return NCCL_CHECK(s, group_end(), err);
}

/* ---- exchanges ---- */

/* One buffer is enough to tell: all memory of an operation is of one kind. */
static bool is_on_device(const struct state *s, const void *buffer)
{
	struct cudaPointerAttributes attributes = { .type = cudaMemoryTypeUnregistered };
	return s->stream && cudaPointerGetAttributes(&attributes, buffer) == cudaSuccess
		&& attributes.type == cudaMemoryTypeDevice;
}

static struct exchange *find_unused(struct state *s)
{
	struct exchange *x = s->exchanges;
	while (x && x->used)
		x = x->next;
	if (!x && (x = calloc(1, sizeof *x))) {
		x->next = s->exchanges;
		s->exchanges = x;
	}
	return x;
}

static int record_begin(struct state *s, struct exchange *x)
{
	if ((!x->begun
			&& CUDA_CHECK(cudaEventCreateWithFlags(&x->begun, cudaEventDisableTiming), &x->err) < 0)
		|| (!x->ended
			&& CUDA_CHECK(cudaEventCreateWithFlags(&x->ended, cudaEventDisableTiming), &x->err)
				< 0))
		return -1;
	return CUDA_CHECK(cudaEventRecord(x->begun, s->stream), &x->err);
}

static struct exchange *take(struct state *s, bool on_device)
{
	struct exchange *x = find_unused(s);
	if (!x) {
		err_set(&s->broken.err, "out of memory");
		s->broken.failed = true;
		return &s->broken;
	}
	*x = (struct exchange) { .next = x->next,
		.used = true,
		.on_device = on_device,
		.begun = x->begun,
		.ended = x->ended };
	x->failed = on_device && record_begin(s, x) < 0;
	return x;
}

static int give_back(struct exchange *x, int rc)
{
	x->used = false;
	return rc;
}

static int record_end(struct state *s, struct exchange *x, struct err *err)
{
	return CUDA_CHECK(cudaEventRecord(x->ended, s->stream), err);
}

/* No peer is late as long as this rank's own GPU has not come to the operation: the deadline begins
 * there. */
static int await_end(struct state *s, struct exchange *x, struct err *err)
{
	double pause = FIRST_LOOK;
	bool begun = false;
	cudaError_t code;
	for (;;) {
		ncclResult_t result = ncclSuccess;
		begun = begun || cudaEventQuery(x->begun) != cudaErrorNotReady;
		if (!begun)
			s->events.computing(s->events.arg);
		if ((code = cudaEventQuery(x->ended)) != cudaErrorNotReady)
			break;
		if (NCCL_CHECK(s, get_async_error(s->comm, &result), err) < 0)
			return -1;
		if (result != ncclSuccess && result != ncclInProgress)
			return explain(s, result, "a collective", __FILE__, __LINE__, err);
		if (!pause_for(s, &pause))
			return stopped(err);
	}
	s->events.progress(s->events.arg);
	return cuda_check((int)code, "cudaEventQuery(x->ended)", __FILE__, __LINE__, err);
}

/* Earlier work on the stream may still write the host memory, so such an exchange begins only when
 * the operations before it are complete. */
static void begin_on_host(struct state *s, struct exchange *x)
{
	if (!x->host)
		x->host = comm_tcp.begin(s->host, x->transfers, x->count, x->sums);
}

static void *nccl_begin(void *state, const struct comm_transfer *transfers, int count,
	const struct comm_sums *sums)
{
	struct state *s = state;
	struct exchange *x =
		take(s, is_on_device(s, count > 0 ? transfers[0].buffer : sums->transfers[0].buffer));
	if (x == &s->broken)
		return x;
	x->transfers = transfers;
	x->count = count;
	x->sums = sums;
	if (x->on_device && !x->failed)
		x->failed = queue_transfers(s, transfers, count, &x->err) < 0
			|| (!sums && record_end(s, x, &x->err) < 0);
	if (!x->on_device && !s->stream)
		begin_on_host(s, x);
	return x;
}

/* Bytes of the piece that each peer sends. */
static size_t received(const struct exchange *x)
{
	for (int i = 0; i < x->count; i++)
		if (x->transfers[i].receive)
			return x->transfers[i].bytes;
	return 0;
}

/* On the device the sum is queued after the pieces without waiting for them, as one run. */
static int nccl_next_run(void *state, void *begun, size_t made, size_t *bytes, struct err *err)
{
	struct state *s = state;
	struct exchange *x = begun;
	if (x->failed)
		return give_back(x, err_fail(err, x->err.status, "%s", x->err.text));
	if (!x->on_device) {
		begin_on_host(s, x);
		return comm_tcp.next_run(s->host, x->host, made, bytes, err);
	}
	*bytes = received(x) - made;
	if (*bytes > 0)
		return 0;
	return queue_transfers(s, x->sums->transfers, x->sums->count, err) < 0 ? -1
																		   : record_end(s, x, err);
}

static int nccl_finish(void *state, void *begun, struct err *err)
{
	struct state *s = state;
	struct exchange *x = begun;
	if (x->failed)
		return give_back(x, err_fail(err, x->err.status, "%s", x->err.text));
	if (x->on_device)
		return give_back(x, await_end(s, x, err));
	begin_on_host(s, x);
	return give_back(x, comm_tcp.finish(s->host, x->host, err));
}

/* ---- collectives ---- */

static int end_collective(struct state *s, struct exchange *x, int rc, struct err *err)
{
	if (rc == 0)
		rc = record_end(s, x, err);
	return give_back(x, rc < 0 ? -1 : await_end(s, x, err));
}

static int nccl_allgather(void *state, const void *mine, void *all, size_t bytes, struct err *err)
{
	struct state *s = state;
	if (bytes == 0 || !is_on_device(s, all))
		return COMM_OF_HOST;
	struct exchange *x = take(s, true);
	if (x->failed)
		return give_back(x, err_fail(err, x->err.status, "%s", x->err.text));
	return end_collective(s, x,
		NCCL_CHECK(s, all_gather(mine, all, bytes, ncclChar, s->comm, s->stream), err), err);
}

static int sum_floats(struct state *s, float *buffer, size_t count, struct err *err)
{
	return NCCL_CHECK(s, all_reduce(buffer, buffer, count, ncclFloat, ncclSum, s->comm, s->stream),
		err);
}

static int sum_bf16(struct state *s, float *buffer, size_t count, struct err *err)
{
	if (!s->bf16)
		s->bf16 = cuda_check_alloc(CAST_ELEMENTS * 2, "gradients in bf16", err);
	for (size_t at = 0; s->bf16 && at < count; at += CAST_ELEMENTS) {
		size_t n = count - at < CAST_ELEMENTS ? count - at : CAST_ELEMENTS;
		if (CUDA_CHECK(cuda_to_bf16(s->bf16, buffer + at, n, s->stream), err) < 0
			|| NCCL_CHECK(s,
				   all_reduce(s->bf16, s->bf16, n, ncclBfloat16, ncclSum, s->comm, s->stream), err)
				< 0
			|| CUDA_CHECK(cuda_from_bf16(buffer + at, s->bf16, n, s->stream), err) < 0)
			return -1;
	}
	return s->bf16 ? 0 : -1;
}

static int nccl_allreduce(void *state, float *buffer, size_t count, bool bf16, struct err *err)
{
	struct state *s = state;
	if (count == 0 || !is_on_device(s, buffer))
		return COMM_OF_HOST;
	struct exchange *x = take(s, true);
	if (x->failed)
		return give_back(x, err_fail(err, x->err.status, "%s", x->err.text));
	return end_collective(s, x,
		bf16 ? sum_bf16(s, buffer, count, err) : sum_floats(s, buffer, count, err), err);
}

/* ---- ways out ---- */

static void nccl_interrupt(void *state)
{
	struct state *s = state;
	atomic_store(&s->interrupted, true);
	comm_tcp.interrupt(s->host);
}

static int nccl_check_peers(void *state, struct err *err)
{
	return comm_tcp.check(((struct state *)state)->host, err);
}

/* Says goodbye first, so that ranks that wait for this one learn why. After that nothing of ours is
 * in use any more. */
static void nccl_leave(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE])
{
	struct state *s = state;
	struct err ignored;
	comm_tcp.leave(s->host, why, flight);
	if (s->comm)
		nccl_bootstrap_end(s->lib, s->comm, !why, END_SECONDS, &ignored);
	s->comm = NULL;
}

static void nccl_hang_up(void *state, double seconds)
{
	comm_tcp.hang_up(((struct state *)state)->host, seconds);
}

static bool nccl_said(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now)
{
	return comm_tcp.said(((struct state *)state)->host, rank, flight, now);
}

static const char *nccl_peer(void *state, int rank)
{
	return comm_tcp.peer(((struct state *)state)->host, rank);
}

static void nccl_close(void *state)
{
	struct state *s = state;
	while (s->exchanges) {
		struct exchange *x = s->exchanges;
		s->exchanges = x->next;
		if (x->begun)
			cudaEventDestroy(x->begun);
		if (x->ended)
			cudaEventDestroy(x->ended);
		free(x);
	}
	if (s->bf16)
		cudaFree(s->bf16);
	comm_tcp.close(s->host);
	free(s);
}

/* ---- opening ---- */

static void on_progress(void *arg)
{
	struct state *s = arg;
	s->events.progress(s->events.arg);
}

static void on_lost(void *arg, const char *why)
{
	struct state *s = arg;
	s->events.lost(s->events.arg, why);
	atomic_store(&s->interrupted, true);
}

static int connect_gpus(struct state *s, const struct ident *ident, struct rdzv *rdzv,
	struct err *err)
{
	static int opened; /* a communicator's number can be used only once */
	int version = 0;
	void *comm = NULL;
	s->lib = nccl_library_load(err);
	/* A rank without the library reports that in the bootstrap, where the others wait for it. */
	if (nccl_bootstrap(rdzv, ident, s->lib, opened++, rdzv_timeout(rdzv), &comm, err) < 0)
		return -1;
	s->comm = comm;
	if (s->lib->get_version(&version) == ncclSuccess)
		snprintf(s->text, sizeof s->text, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
			version % 100);
	return 0;
}

static void *nccl_open(const struct ident *ident, struct rdzv *rdzv,
	const struct comm_events *events, struct err *err)
{
	static const unsigned char nowhere[FLIGHT_SIZE];
	struct state *s = calloc(1, sizeof *s);
	if (!s) {
		err_set(err, "comm: couldn't begin: out of memory");
		return NULL;
	}
	s->events = *events;
	s->host = comm_tcp.open(ident, rdzv,
		&(struct comm_events) { .arg = s, .progress = on_progress, .lost = on_lost }, err);
	if (!s->host) {
		free(s);
		return NULL;
	}
	if (connect_gpus(s, ident, rdzv, err) == 0)
		return s;
	comm_tcp.leave(s->host, err->text, nowhere);
	nccl_close(s);
	return NULL;
}

static int nccl_attach(void *state, void *stream, struct err *err)
{
	((struct state *)state)->stream = stream;
	return 0;
}

static const char *nccl_text(void *state)
{
	return ((struct state *)state)->text;
}

const struct comm_provider comm_nccl = {
	.name = "nccl",
	.blind = true,
	.open = nccl_open,
	.attach = nccl_attach,
	.begin = nccl_begin,
	.next_run = nccl_next_run,
	.finish = nccl_finish,
	.allgather = nccl_allgather,
	.allreduce = nccl_allreduce,
	.interrupt = nccl_interrupt,
	.check = nccl_check_peers,
	.leave = nccl_leave,
	.hang_up = nccl_hang_up,
	.said = nccl_said,
	.close = nccl_close,
	.peer = nccl_peer,
	.text = nccl_text,
};
