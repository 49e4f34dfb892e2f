/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's thread: runs the queued operations in order, begins reductions early where
 * they allow it, and words the failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/comm/comm_private.h"
#include "trainer/telemetry/trace.h"

#define SETTLE_LOOK 5e-5 /* seconds between two looks at a device */
#define NAMED 4          /* ranks that an error names; the rest are only counted */

static void enter(struct comm *comm, const struct comm_op *op)
{
	comm->now = (struct flight_operation) { .step = op->step,
		.bucket = op->bucket,
		.bytes = comm_op_bytes(op) };
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
	struct comm_op *op = NULL;

	pthread_mutex_lock(&comm->lock);
	while (!comm->head && !comm->closing && comm->failure == FAILURE_NONE)
		pthread_cond_wait(&comm->wake, &comm->lock);
	if (comm->failure == FAILURE_NONE && comm->head) {
		op = comm->head;
		comm->head = op->next;
		if (!comm->head)
			comm->tail = NULL;
		enter(comm, op);
	}
	pthread_mutex_unlock(&comm->lock);
	return op;
}

/* Words a failed operation's error: which operation, of what, after how long, and then the
 * reason. */
static void word_failure(struct comm *comm, const struct err *err)
{
	char why[sizeof comm->error.text];

	if (comm->failure == FAILURE_DEADLINE)
		snprintf(why, sizeof why, "%.600s, %.300s", comm->error.text, err->text);
	else
		memcpy(why, comm->error.text, sizeof why);
	err_fail(&comm->error, comm->error.status,
		"comm: couldn't complete %s of %s after %.1f s: %.800s", comm->now.operation,
		comm->now.label, clock_now() - comm->now.entered, why);
	comm->worded = true;
}

static void end_op(struct comm *comm, const struct comm_op *op, int rc, enum failure failure,
	const struct err *err)
{
	pthread_mutex_lock(&comm->lock);
	comm->busy += clock_now() - comm->now.entered;
	if (rc < 0) {
		comm_record_failure(comm, failure, err->status, err->text);
		word_failure(comm, err);
	} else {
		comm->done = op->ticket;
		comm->now.operation[0] = '\0';
		flight_finish(comm->flight);
		pthread_cond_broadcast(&comm->settled);
	}
	pthread_mutex_unlock(&comm->lock);
}

/* Traces the part of an operation from `begin` until now. Returns the end. */
static double trace_part(struct comm *comm, const struct comm_op *op, const char *part,
	double begin, uint64_t bytes)
{
	struct trace_span span = { .begin = begin,
		.ready = op->queued,
		.bytes = bytes,
		.thread = TRACE_COMMUNICATION };

	if (begin <= 0)
		return 0;
	span.end = clock_now();
	snprintf(span.name, sizeof span.name, "%s: %s", part, op->label);
	const char *step =
		strstr(op->label, TRACE_OF_STEP); /* weights may travel during the step after theirs */
	if (step)
		span.step = strtoull(step + strlen(TRACE_OF_STEP), NULL, 10);
	trace_add(comm->trace, &span);
	return span.end;
}

/* An operation as it runs. */
struct running {
	struct comm *comm;
	struct comm_op *op;
	double begin;  /* of the part that is not traced yet; 0 without a trace */
	uint64_t told; /* bytes sent that are traced already */
	bool faulty;   /* `make` has failed */
};

/* Traces the transfers since the last traced part, but not before this rank's own device reached
 * the operation. */
static void trace_transfers(struct running *running)
{
	uint64_t sent = running->op->sent;
	double entered = running->comm->now.entered; /* only this thread writes it */

	if (running->begin > 0 && entered > running->begin)
		running->begin = entered;
	running->begin = trace_part(running->comm, running->op, running->op->operation, running->begin,
		sent - running->told);
	running->told = sent;
}

/* Makes what the operation does on the device start after what was queued there before it. */
static void wait_event(struct comm_op *op)
{
	if (op->device && !op->waits)
		op->device->wait_event(op->device, op->event);
	op->waits = true;
}

static void prepare(struct running *running, struct comm_op *op)
{
	if (!op->prepare)
		return;
	if (op != running->op)
		trace_transfers(running);
	op->prepare(op->arg);
	op->prepare = NULL;
	running->begin = trace_part(running->comm, op, "add", running->begin, 0);
}

/* The operation queued after `op`, or the first one for NULL. Only this thread removes any. */
static struct comm_op *queued_behind(struct comm *comm, const struct comm_op *op)
{
	pthread_mutex_lock(&comm->lock);
	struct comm_op *next = comm->failure == FAILURE_NONE ? (op ? op->next : comm->head) : NULL;
	pthread_mutex_unlock(&comm->lock);
	return next;
}

/* All sums of the running operation are made, so the reductions that follow begin, up to and
 * including the first that makes a sum itself. */
static void begin_next(void *arg)
{
	struct running *running = arg;
	struct comm *comm = running->comm;
	struct comm_op *op = NULL;

	do {
		op = queued_behind(comm, op);
		if (!op || !op->reduction)
			return;
		wait_event(op);
		prepare(running, op);
		comm_op_begin(op, comm->provider, comm->state);
	} while (!op->make);
}

/* Called when a run of bytes has come from all peers. */
static int make_run(void *arg, size_t first, size_t bytes, struct err *err)
{
	struct running *running = arg;
	struct comm_op *op = running->op;

	trace_transfers(running);
	int rc = op->make(op->arg, first, bytes, err);
	running->begin = trace_part(running->comm, op, "add", running->begin, 0);
	running->faulty = rc < 0;
	for (int i = 0; i < op->sums.count; i++)
		op->sent += op->sums.transfers[i].receive ? 0 : bytes;
	return rc;
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

static int run_op(struct comm *comm, struct comm_op *op)
{
	struct err err = { .status = EXIT_FAULT };
	struct running running = { .comm = comm, .op = op, .begin = trace_begin(comm->trace) };

	op->sums.make = make_run;
	op->sums.arg = &running;
	op->made = op->reduction ? begin_next : NULL;
	wait_event(op);
	prepare(&running, op);
	int rc = op->run(op, comm->provider, comm->state, &err);
	enum failure failure = running.faulty ? FAILURE_FAULT : FAILURE_LOST;
	if (strcmp(op->operation, "call") != 0)
		trace_transfers(&running);
	if (rc == 0 && op->work) {
		failure = FAILURE_FAULT;
		rc = op->work(op->arg, &err);
		if (rc == 0)
			rc = settle(comm, op, &err);
		trace_part(comm, op, "add", running.begin, 0);
	}
	end_op(comm, op, rc, failure, &err);
	return rc;
}

/* Names the ranks that took no leave, where the provider can't tell which rank was waited for.
 * Leaves out ranks that the text names already. */
static void name_silent(struct comm *comm)
{
	unsigned char record[FLIGHT_SIZE];
	char names[400] = "";
	int silent = 0;
	double now;

	for (int rank = 0; rank < comm->size; rank++) {
		const char *name = comm->provider->peer(comm->state, rank);

		if (rank == comm->rank || comm->provider->said(comm->state, rank, record, &now)
			|| strstr(comm->error.text, name))
			continue;
		if (silent++ < NAMED)
			snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.64s",
				silent > 1 ? ", " : "", name);
	}
	if (silent > NAMED)
		snprintf(names + strlen(names), sizeof names - strlen(names), " and %d more",
			silent - NAMED);
	size_t used = strlen(comm->error.text);
	if (silent > 0)
		snprintf(comm->error.text + used, sizeof comm->error.text - used,
			"; nothing was heard of %s", names);
}

void *comm_run(void *arg)
{
	struct comm *comm = arg;
	struct comm_op *op;
	struct err error;

	while ((op = next_op(comm)) && run_op(comm, op) >= 0)
		comm_op_free(op);
	pthread_mutex_lock(&comm->lock);
	bool orderly = comm->failure == FAILURE_NONE;
	if (!orderly && !comm->worded && comm->latest)
		err_prefix(&comm->error, "comm: after %s of %s", comm->latest, comm->now.label);
	else if (!orderly && !comm->worded)
		err_prefix(&comm->error, "comm");
	error = comm->error;
	if (comm->flight)
		flight_copy(comm->flight, comm->last_words);
	comm->left_at = clock_now();
	pthread_mutex_unlock(&comm->lock);
	comm->provider->leave(comm->state, orderly ? NULL : error.text, comm->last_words);
	comm_op_free(op);

	pthread_mutex_lock(&comm->lock);
	if (comm->provider->blind
		&& (comm->failure == FAILURE_DEADLINE || comm->failure == FAILURE_LOST))
		name_silent(comm);
	comm->left = true;
	pthread_cond_broadcast(&comm->settled);
	pthread_mutex_unlock(&comm->lock);
	return NULL;
}
