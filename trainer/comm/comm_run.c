/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of operations, and the communicator's thread, which takes them in order through three
 * states:
 *
 *     begin    waits for the device, prepares what is sent, starts the transfers
 *     sum      a reduction: adds each run of bytes that has come from all peers; the sum of a run
 *              travels while the next run comes
 *     finish   waits for the end of the transfers; collectives make theirs here
 *
 * Once a reduction is summed, those queued right after it begin. Its sums travel meanwhile. One of
 * these that may go ahead sums, too, and then those after it begin. It begins even before the first
 * is summed, where the provider lets it. */
#include "trainer/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/comm/comm_private.h"
#include "telemetry/trace.h"

#define SETTLE_LOOK 5e-5 /* seconds between two looks at a device */

/* ---- the queue ---- */

static struct comm_op *copy_op(const char *label, int room, const struct comm_op *op)
{
	struct comm_op *copy = calloc(1, sizeof *copy + (size_t)room * sizeof copy->transfers[0]);

	if (!copy)
		return NULL;
	*copy = *op;
	snprintf(copy->label, sizeof copy->label, "%s", label);
	return copy;
}

void comm_op_free(struct comm_op *op)
{
	free(op->scratch);
	free(op);
}

/* NULL: there was no memory for it. */
static comm_ticket enqueue(struct comm *comm, struct comm_op *op)
{
	if (!op) {
		comm_fail(comm, FAILURE_FAULT, EXIT_FAULT, "couldn't queue an operation: out of memory");
		return comm->last;
	}
	if (comm->device) {
		op->device = comm->device;
		op->event = comm->device->record_event(comm->device);
	}
	pthread_mutex_lock(&comm->lock);
	comm_ticket ticket = op->ticket = ++comm->last;
	op->step = comm->step;
	op->bucket = comm->bucket;
	op->queued = trace_begin(comm->trace);
	if (comm->tail)
		comm->tail->next = op;
	else
		comm->head = op;
	comm->tail = op;
	pthread_cond_signal(&comm->wake);
	pthread_mutex_unlock(&comm->lock);
	return ticket;
}

comm_ticket comm_queue(struct comm *comm, const char *label, int room, const struct comm_op *op)
{
	return enqueue(comm, copy_op(label, room, op));
}

/* Leaves out those of 0 bytes. Returns the number of the others. */
static int copy_transfers(struct comm_transfer *to, const struct comm_transfer *from, int count)
{
	int copied = 0;

	for (int i = 0; i < count; i++)
		if (from[i].bytes > 0)
			to[copied++] = from[i];
	return copied;
}

comm_ticket comm_reduce(struct comm *comm, const char *label,
	const struct comm_reduction *reduction)
{
	struct comm_op *op = copy_op(label, reduction->piece_count + reduction->sum_count,
		&(struct comm_op) { .operation = "exchange",
			.reduction = true,
			.ahead = reduction->ahead,
			.after = reduction->after,
			.prepare = reduction->prepare,
			.add = reduction->add,
			.arg = reduction->arg });

	if (op) {
		op->count = copy_transfers(op->transfers, reduction->pieces, reduction->piece_count);
		struct comm_transfer *sums = op->transfers + op->count;
		op->sums = (struct comm_sums) { .transfers = sums,
			.count = copy_transfers(sums, reduction->sums, reduction->sum_count) };
	}
	return enqueue(comm, op);
}

comm_ticket comm_exchange(struct comm *comm, const char *label,
	const struct comm_transfer *transfers, int count, comm_work *work, void *arg)
{
	struct comm_op *op = copy_op(label, count,
		&(struct comm_op) { .operation = count ? "exchange" : "call", .work = work, .arg = arg });

	if (op)
		op->count = copy_transfers(op->transfers, transfers, count);
	return enqueue(comm, op);
}

comm_ticket comm_call(struct comm *comm, const char *label, comm_work *work, void *arg)
{
	return comm_exchange(comm, label, NULL, 0, work, arg);
}

comm_ticket comm_mark(struct comm *comm, const char *label)
{
	return comm_queue(comm, label, 0, &(struct comm_op) { .operation = "ready" });
}

/* Bytes of all buffers of an operation whose turn has come. For an all-gather op->bytes is one
 * rank's part; an exchange has only its transfers, and a collective has none yet. */
static size_t bytes_of(const struct comm *comm, const struct comm_op *op)
{
	size_t bytes = op->bytes;

	if (strcmp(op->operation, "all-gather") == 0)
		return bytes * (size_t)comm->size;
	for (int i = 0; i < op->count + op->sums.count; i++)
		bytes += op->transfers[i].bytes;
	return bytes;
}

/* -1 where a transfer's peer does not exist or is this rank. */
static int check_peers(const struct comm *comm, const struct comm_op *op, struct err *err)
{
	for (int i = 0; i < op->count + op->sums.count; i++)
		if (op->transfers[i].peer < 0 || op->transfers[i].peer >= comm->size
			|| op->transfers[i].peer == comm->rank)
			return err_set(err, "rank %d can't exchange with rank %d of %d", comm->rank,
				op->transfers[i].peer, comm->size);
	return 0;
}

/* ---- traces ---- */

/* Traces the part of an operation from the last traced part until now. */
static void trace_part(struct comm *comm, const struct comm_op *op, const char *part,
	uint64_t bytes)
{
	struct trace_span span = { .begin = comm->untraced,
		.ready = op->queued,
		.bytes = bytes,
		.thread = TRACE_COMMUNICATION };

	if (comm->untraced <= 0)
		return;
	comm->untraced = span.end = clock_now();
	snprintf(span.name, sizeof span.name, "%s: %s", part, op->label);
	const char *step =
		strstr(op->label, TRACE_OF_STEP); /* weights may travel during the step after theirs */
	if (step)
		span.step = strtoull(step + strlen(TRACE_OF_STEP), NULL, 10);
	trace_add(comm->trace, &span);
}

/* Traces the running operation's transfers since the last traced part, but not before this rank's
 * own device reached the operation. */
static void trace_transfers(struct comm *comm, struct comm_op *op)
{
	double entered = comm->now.entered; /* only this thread writes it */

	if (comm->untraced > 0 && entered > comm->untraced)
		comm->untraced = entered;
	trace_part(comm, op, op->operation, op->sent);
	op->sent = 0;
}

/* ---- begin, sum, finish ---- */

static void count_sent(struct comm_op *op, const struct comm_transfer *transfers, int count,
	size_t most)
{
	for (int i = 0; i < count; i++)
		if (!transfers[i].receive)
			op->sent += transfers[i].bytes < most ? transfers[i].bytes : most;
}

/* Does nothing where it has begun already. What the operation does on the device starts after what
 * was queued there before it. A failure is reported by a later state. */
static void begin(struct comm *comm, struct comm_op *op)
{
	struct err later;

	if (op->state != COMM_OP_QUEUED)
		return;
	op->state = op->add ? COMM_OP_BEGUN : COMM_OP_SUMMED;
	if (op->device)
		op->device->wait_event(op->device, op->event);
	if (op->prepare) {
		op->prepare(op->arg);
		trace_part(comm, op, "add", 0);
	}
	if (op->count + op->sums.count == 0 || check_peers(comm, op, &later) < 0)
		return;
	count_sent(op, op->transfers, op->count, SIZE_MAX);
	op->exchange =
		comm->provider->begin(comm->state, op->transfers, op->count, op->add ? &op->sums : NULL);
}

/* The reduction queued right after another; NULL: there is none yet. Only this thread removes
 * any. */
static struct comm_op *following(struct comm *comm, const struct comm_op *op)
{
	pthread_mutex_lock(&comm->lock);
	struct comm_op *next = comm->failure == FAILURE_NONE && op->reduction ? op->next : NULL;
	bool ready = next && next->reduction && next->after <= comm->done;
	pthread_mutex_unlock(&comm->lock);
	return ready ? next : NULL;
}

static void begin_beside(struct comm *comm, struct comm_op *running, struct comm_op *op)
{
	if (op->state == COMM_OP_QUEUED && (op->prepare || op->ahead))
		trace_transfers(comm, running);
	begin(comm, op);
}

/* Begins those right after the running one that may go ahead of its sum. */
static void begin_ahead(struct comm *comm, struct comm_op *running)
{
	struct comm_op *op = running;

	while (comm->provider->concurrent && (op = following(comm, op)) && op->ahead)
		begin_beside(comm, running, op);
}

static enum failure sum(struct comm *comm, struct comm_op *op, struct err *err)
{
	for (size_t made = 0, bytes; op->exchange && op->state == COMM_OP_BEGUN; made += bytes) {
		begin_ahead(comm, op);
		if (comm->provider->next_run(comm->state, op->exchange, made, &bytes, err) < 0)
			return FAILURE_LOST;
		if (bytes == 0)
			break;
		trace_transfers(comm, op);
		int rc = op->add(op->arg, made, bytes, err);
		trace_part(comm, op, "add", 0);
		if (rc < 0)
			return FAILURE_FAULT;
		count_sent(op, op->sums.transfers, op->sums.count, bytes);
	}
	op->state = COMM_OP_SUMMED;
	return FAILURE_NONE;
}

/* Begins the reductions queued right after one that is summed, until one has a sum to make that
 * can't be made ahead. */
static enum failure begin_following(struct comm *comm, struct comm_op *running, struct err *err)
{
	enum failure failure = FAILURE_NONE;
	struct comm_op *op = running;

	while (op->state == COMM_OP_SUMMED && failure == FAILURE_NONE && (op = following(comm, op))) {
		begin_beside(comm, running, op);
		if (op->ahead)
			failure = sum(comm, op, err);
	}
	return failure;
}

void comm_note_computing(void *arg)
{
	struct comm *comm = arg;

	pthread_mutex_lock(&comm->lock);
	comm->progress = comm->now.entered = clock_now();
	pthread_mutex_unlock(&comm->lock);
}

/* The ticket must not be done before what the work queued on the device is. */
static int settle(struct comm *comm, struct comm_op *op, struct err *err)
{
	struct deadline never = deadline_in(1e9);
	int rc = op->device ? 0 : 1;

	while (rc == 0 && (rc = op->device->comm_stream_idle(op->device, err)) == 0) {
		if (__atomic_load_n(&comm->stopping, __ATOMIC_ACQUIRE))
			return err_fail(err, EXIT_LOST, "waiting for the device");
		comm_note_computing(comm);
		deadline_sleep(never, SETTLE_LOOK);
	}
	return rc < 0 ? -1 : 0;
}

static int end_transfers(struct comm *comm, struct comm_op *op, struct err *err)
{
	if (op->run)
		return op->run(comm, op, err);
	return op->exchange ? comm->provider->finish(comm->state, op->exchange, err)
						: check_peers(comm, op, err);
}

static enum failure finish(struct comm *comm, struct comm_op *op, struct err *err)
{
	int rc = end_transfers(comm, op, err);

	if (strcmp(op->operation, "call") != 0)
		trace_transfers(comm, op);
	if (rc < 0)
		return FAILURE_LOST;
	if (!op->work)
		return FAILURE_NONE;
	rc = op->work(op->arg, err);
	if (rc == 0)
		rc = settle(comm, op, err);
	trace_part(comm, op, "add", 0);
	return rc < 0 ? FAILURE_FAULT : FAILURE_NONE;
}

static enum failure run_op(struct comm *comm, struct comm_op *op, struct err *err)
{
	comm->untraced = trace_begin(comm->trace);
	begin(comm, op);
	enum failure failure = sum(comm, op, err);
	if (failure != FAILURE_NONE)
		return failure;
	failure = begin_following(comm, op, err);
	return failure == FAILURE_NONE ? finish(comm, op, err) : failure;
}

/* ---- the thread ---- */

static void enter(struct comm *comm, const struct comm_op *op)
{
	comm->now = (struct flight_operation) { .step = op->step,
		.bucket = op->bucket,
		.bytes = bytes_of(comm, op) };
	memcpy(comm->now.label, op->label, sizeof op->label);
	snprintf(comm->now.operation, sizeof comm->now.operation, "%s", op->operation);
	comm->now.entered = comm->progress = clock_now();
	comm->latest = op->operation;
	flight_enter(comm->flight, &comm->now);
}

/* Waits for the next operation and enters it in the flight recorder. NULL: the thread must
 * leave. */
static struct comm_op *next_op(struct comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	while (!comm->head && !comm->closing && comm->failure == FAILURE_NONE)
		pthread_cond_wait(&comm->wake, &comm->lock);
	struct comm_op *op = comm->failure == FAILURE_NONE ? comm->head : NULL;
	if (op)
		enter(comm, op);
	pthread_mutex_unlock(&comm->lock);
	return op;
}

/* One that has failed stays: the provider may still use what belongs to it. */
static void end_op(struct comm *comm, const struct comm_op *op, enum failure failure,
	const struct err *err)
{
	pthread_mutex_lock(&comm->lock);
	comm->busy += clock_now() - comm->now.entered;
	if (failure != FAILURE_NONE) {
		comm_fail_op(comm, failure, err);
	} else {
		comm->head = op->next;
		comm->tail = op->next ? comm->tail : NULL;
		comm->done = op->ticket;
		comm->now.operation[0] = '\0';
		flight_finish(comm->flight);
		pthread_cond_broadcast(&comm->settled);
	}
	pthread_mutex_unlock(&comm->lock);
}

void *comm_run(void *arg)
{
	struct comm *comm = arg;
	struct comm_op *op;

	while ((op = next_op(comm))) {
		struct err err = { .status = EXIT_FAULT };
		enum failure failure = run_op(comm, op, &err);

		end_op(comm, op, failure, &err);
		if (failure == FAILURE_NONE)
			comm_op_free(op);
	}
	pthread_mutex_lock(&comm->lock);
	comm_word_idle_failure(comm);
	struct err error = comm->error;
	bool orderly = comm->failure == FAILURE_NONE;
	if (comm->flight)
		flight_copy(comm->flight, comm->last_words);
	comm->left_at = clock_now();
	pthread_mutex_unlock(&comm->lock);
	comm->provider->leave(comm->state, orderly ? NULL : error.text + comm->reason,
		comm->last_words);

	pthread_mutex_lock(&comm->lock);
	comm_name_silent(comm);
	comm->left = true;
	pthread_cond_broadcast(&comm->settled);
	pthread_mutex_unlock(&comm->lock);
	return NULL;
}
