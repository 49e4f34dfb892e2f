/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator: a queue of operations, the thread that runs them in order, tickets, and the one error that ends
 * everything. Whoever waits also watches: for the deadline, and for peers that are gone. */
#include "config.h"

#include "trainer/comm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/thread.h"
#include "trainer/comm_op.h"
#include "trainer/comm_provider.h"
#include "trainer/trace.h"

#define WATCH_SECONDS 0.05 /* between two looks of a waiter at peers and deadline */
#define LEAVE_SECONDS 10.0 /* a thread that has not left by then is given up by the waiters */

enum failure { FAILURE_NONE, FAILURE_DEADLINE, FAILURE_LOST, FAILURE_ABORT, FAILURE_FAULT };

struct comm {
	const struct comm_provider *provider;
	void *state;
	int rank, size;
	double deadline;
	pthread_t thread;
	pthread_mutex_t lock;  /* of all below */
	pthread_cond_t wake;   /* for the thread: an operation, a failure or the end */
	pthread_cond_t settled; /* for waiters: a ticket is done, or the thread has left */
	struct comm_op *head, *tail;
	comm_ticket last, done;
	struct standing_operation now; /* its `operation` is "" when idle */
	const char *latest;    /* the operation begun last; its label is still in `now` */
	struct standing *standing; /* the record; NULL: none */
	uint64_t step;         /* of the operations queued next, */
	int bucket;            /* and their bucket */
	unsigned char last_words[STANDING_SIZE];
	double left_at;        /* when they were said */
	double progress;       /* when bytes moved last */
	double busy;           /* seconds of all operations that are done */
	struct trace *trace;   /* NULL: none */
	bool closing, worded, left;
	enum failure failure;
	double failed_at;
	struct err error;      /* of the failure; complete when `left` */
};

/* The first failure counts. Returns whether this was it; then the caller interrupts the provider, without the lock. */
static bool record_failure(struct comm *comm, enum failure failure, enum exit_status status, const char *why)
{
	if (comm->failure != FAILURE_NONE)
		return false;
	comm->failure = failure;
	comm->failed_at = clock_now();
	err_fail(&comm->error, status, "%s", why);
	pthread_cond_broadcast(&comm->wake);
	pthread_cond_broadcast(&comm->settled);
	return true;
}

static void comm_fail(struct comm *comm, enum failure failure, const char *why)
{
	pthread_mutex_lock(&comm->lock);
	bool first = record_failure(comm, failure, EXIT_LOST, why);
	pthread_mutex_unlock(&comm->lock);
	if (first)
		comm->provider->interrupt(comm->state);
}

static void on_progress(void *arg)
{
	struct comm *comm = arg;

	pthread_mutex_lock(&comm->lock);
	comm->progress = clock_now();
	pthread_mutex_unlock(&comm->lock);
}

static void on_lost(void *arg, const char *why)
{
	struct comm *comm = arg;

	pthread_mutex_lock(&comm->lock);
	record_failure(comm, FAILURE_LOST, EXIT_LOST, why);
	pthread_mutex_unlock(&comm->lock);
}

static void enter(struct comm *comm, const struct comm_op *op)
{
	comm->now = (struct standing_operation){ .step = op->step, .bucket = op->bucket, .bytes = comm_op_bytes(op) };
	memcpy(comm->now.label, op->label, sizeof op->label);
	snprintf(comm->now.operation, sizeof comm->now.operation, "%s", op->operation);
	comm->now.entered = comm->progress = clock_now();
	comm->latest = op->operation;
	standing_enter(comm->standing, &comm->now);
}

/* Waits for the next operation and enters it in the record. NULL: leave. */
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

/* The error of an operation that failed: what, where, how long, and then the reason. */
static void word_failure(struct comm *comm, const struct err *err)
{
	char why[sizeof comm->error.text];

	if (comm->failure == FAILURE_DEADLINE)
		snprintf(why, sizeof why, "%.600s, %.300s", comm->error.text, err->text);
	else
		memcpy(why, comm->error.text, sizeof why);
	err_fail(&comm->error, comm->error.status, "comm: couldn't complete %s of %s after %.1f s: %.800s",
		comm->now.operation, comm->now.label, clock_now() - comm->now.entered, why);
	comm->worded = true;
}

static void end_op(struct comm *comm, const struct comm_op *op, int rc, enum failure failure, const struct err *err)
{
	pthread_mutex_lock(&comm->lock);
	comm->busy += clock_now() - comm->now.entered;
	if (rc < 0) {
		record_failure(comm, failure, err->status, err->text);
		word_failure(comm, err);
	} else {
		comm->done = op->ticket;
		comm->now.operation[0] = '\0';
		standing_finish(comm->standing);
		pthread_cond_broadcast(&comm->settled);
	}
	pthread_mutex_unlock(&comm->lock);
}

/* The part of an operation from `begin` until now. Returns the end. */
static double trace_part(struct comm *comm, const struct comm_op *op, const char *part, double begin, uint64_t bytes)
{
	struct trace_span span = { .begin = begin, .ready = op->queued, .bytes = bytes, .thread = TRACE_COMMUNICATION };

	if (begin <= 0)
		return 0;
	span.end = clock_now();
	snprintf(span.name, sizeof span.name, "%s: %s", part, op->label);
	const char *step = strstr(op->label, TRACE_OF_STEP); /* weights may travel in the step behind theirs */
	if (step)
		span.step = strtoull(step + strlen(TRACE_OF_STEP), NULL, 10);
	trace_add(comm->trace, &span);
	return span.end;
}

/* An operation as it runs. */
struct running {
	struct comm *comm;
	struct comm_op *op;
	double begin;  /* of its part that is not traced yet, 0 without a trace */
	uint64_t told; /* bytes sent that were traced */
	bool faulty;   /* what it makes has failed */
};

/* The transfers since the part before. */
static void trace_transfers(struct running *running)
{
	uint64_t sent = running->op->sent;

	running->begin = trace_part(running->comm, running->op, running->op->operation, running->begin, sent - running->told);
	running->told = sent;
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

/* The queued operation behind `op`, or the first; only this thread takes any away. */
static struct comm_op *queued_behind(struct comm *comm, const struct comm_op *op)
{
	pthread_mutex_lock(&comm->lock);
	struct comm_op *next = comm->failure == FAILURE_NONE ? (op ? op->next : comm->head) : NULL;
	pthread_mutex_unlock(&comm->lock);
	return next;
}

/* Nothing is left to be made, so what comes next is begun: up to the one that is to make something itself. */
static void begin_next(void *arg)
{
	struct running *running = arg;
	struct comm *comm = running->comm;
	struct comm_op *op = NULL;

	do {
		op = queued_behind(comm, op);
		if (!op || !op->reduction)
			return;
		prepare(running, op);
		comm_op_begin(op, comm->provider, comm->state);
	} while (!op->make);
}

/* A run of bytes has come. */
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

static void run_op(struct comm *comm, struct comm_op *op)
{
	struct err err = { .status = EXIT_FAULT };
	struct running running = { .comm = comm, .op = op, .begin = trace_begin(comm->trace) };

	op->sums.make = make_run;
	op->sums.arg = &running;
	op->made = op->reduction ? begin_next : NULL;
	prepare(&running, op);
	int rc = op->run(op, comm->provider, comm->state, &err);
	enum failure failure = running.faulty ? FAILURE_FAULT : FAILURE_LOST;
	if (strcmp(op->operation, "call") != 0)
		trace_transfers(&running);
	if (rc == 0 && op->work) {
		failure = FAILURE_FAULT;
		rc = op->work(op->arg, &err);
		trace_part(comm, op, "add", running.begin, 0);
	}
	end_op(comm, op, rc, failure, &err);
}

static void *run_thread(void *arg)
{
	struct comm *comm = arg;
	struct comm_op *op;
	struct err error;

	while ((op = next_op(comm))) {
		run_op(comm, op);
		free(op);
	}
	pthread_mutex_lock(&comm->lock);
	bool orderly = comm->failure == FAILURE_NONE;
	if (!orderly && !comm->worded && comm->latest)
		err_prefix(&comm->error, "comm: after %s of %s", comm->latest, comm->now.label);
	else if (!orderly && !comm->worded)
		err_prefix(&comm->error, "comm");
	error = comm->error;
	if (comm->standing)
		standing_copy(comm->standing, comm->last_words);
	comm->left_at = clock_now();
	pthread_mutex_unlock(&comm->lock);
	comm->provider->leave(comm->state, orderly ? NULL : error.text, comm->last_words);

	pthread_mutex_lock(&comm->lock);
	comm->left = true;
	pthread_cond_broadcast(&comm->settled);
	pthread_mutex_unlock(&comm->lock);
	return NULL;
}

static comm_ticket enqueue(struct comm *comm, struct comm_op *op)
{
	pthread_mutex_lock(&comm->lock);
	comm_ticket ticket = ++comm->last;

	if (!op) {
		bool first = record_failure(comm, FAILURE_FAULT, EXIT_FAULT, "couldn't queue an operation: out of memory");
		pthread_mutex_unlock(&comm->lock);
		if (first)
			comm->provider->interrupt(comm->state);
		return ticket;
	}
	op->ticket = ticket;
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

comm_ticket comm_exchange(struct comm *comm, const char *label, const struct comm_transfer *transfers, int count,
	comm_work *work, void *arg)
{
	return enqueue(comm, comm_op_exchange(comm->rank, comm->size, label, transfers, count, work, arg));
}

comm_ticket comm_reduce(struct comm *comm, const char *label, const struct comm_reduction *reduction)
{
	return enqueue(comm, comm_op_reduce(comm->rank, comm->size, label, reduction));
}

comm_ticket comm_allgather(struct comm *comm, const char *label, const void *mine, void *all, size_t bytes)
{
	return enqueue(comm, comm_op_allgather(comm->rank, comm->size, label, mine, all, bytes));
}

comm_ticket comm_allreduce(struct comm *comm, const char *label, float *buffer, size_t count)
{
	return enqueue(comm, comm_op_allreduce(comm->rank, comm->size, label, buffer, count));
}

comm_ticket comm_allreduce_bf16(struct comm *comm, const char *label, float *buffer, size_t count)
{
	return enqueue(comm, comm_op_allreduce_bf16(comm->rank, comm->size, label, buffer, count));
}

comm_ticket comm_broadcast(struct comm *comm, const char *label, void *buffer, size_t bytes, int root)
{
	return enqueue(comm, comm_op_broadcast(comm->rank, comm->size, label, buffer, bytes, root));
}

comm_ticket comm_call(struct comm *comm, const char *label, comm_work *work, void *arg)
{
	return enqueue(comm, comm_op_exchange(comm->rank, comm->size, label, NULL, 0, work, arg));
}

comm_ticket comm_mark(struct comm *comm, const char *label)
{
	struct comm_op *op = comm_op_exchange(comm->rank, comm->size, label, NULL, 0, NULL, NULL);

	if (op)
		op->operation = "ready";
	return enqueue(comm, op);
}

void comm_place(struct comm *comm, uint64_t step, int bucket)
{
	pthread_mutex_lock(&comm->lock);
	comm->step = step;
	comm->bucket = bucket;
	pthread_mutex_unlock(&comm->lock);
}

/* One look at what can end a wait, without the lock held. `progress`: since when nothing has moved. */
static void watch(struct comm *comm, bool running, double progress)
{
	struct err err;

	if (!running)
		return;
	if (comm->provider->check(comm->state, &err) < 0) {
		comm_fail(comm, FAILURE_LOST, err.text);
	} else if (clock_now() - progress > comm->deadline) {
		char why[80];
		snprintf(why, sizeof why, "no progress for %.1f s", clock_now() - progress);
		comm_fail(comm, FAILURE_DEADLINE, why);
	}
}

/* Sleeps until something is settled, but not past the next look. */
static void wait_settled(struct comm *comm)
{
	struct timespec until = deadline_timespec(deadline_in(WATCH_SECONDS));

	pthread_cond_timedwait(&comm->settled, &comm->lock, &until);
}

/* With the lock held; for a look it is given back. `begun`: since when is waited. Returns as comm_wait(). */
static int wait_done(struct comm *comm, comm_ticket ticket, double begun, struct err *err)
{
	for (;;) {
		if (comm->failure == FAILURE_NONE && comm->done >= ticket)
			return 0;
		if (comm->failure != FAILURE_NONE && (comm->left || clock_now() - comm->failed_at > LEAVE_SECONDS))
			return err_fail(err, comm->error.status, "%s", comm->error.text);
		wait_settled(comm);
		bool running = comm->now.operation[0] && comm->failure == FAILURE_NONE;
		double progress = comm->progress > begun ? comm->progress : begun;

		pthread_mutex_unlock(&comm->lock);
		watch(comm, running, progress);
		pthread_mutex_lock(&comm->lock);
	}
}

int comm_wait(struct comm *comm, comm_ticket ticket, struct err *err)
{
	double begin = trace_begin(comm->trace);

	pthread_mutex_lock(&comm->lock);
	if (ticket > comm->last) {
		pthread_mutex_unlock(&comm->lock);
		return err_set(err, "comm: couldn't wait for ticket %llu: it was never given", (unsigned long long)ticket);
	}
	bool waits = comm->failure == FAILURE_NONE && comm->done < ticket;
	if (waits)
		standing_wait(comm->standing, true);
	int rc = wait_done(comm, ticket, clock_now(), err);
	if (waits && rc == 0) /* else it still stands there */
		standing_wait(comm->standing, false);
	pthread_mutex_unlock(&comm->lock);
	trace_end(comm->trace, begin, "wait");
	return rc;
}

int comm_check(struct comm *comm, struct err *err)
{
	pthread_mutex_lock(&comm->lock);
	int rc = comm->failure == FAILURE_NONE ? 0 : wait_done(comm, 0, clock_now(), err);
	pthread_mutex_unlock(&comm->lock);
	return rc;
}

void comm_trace(struct comm *comm, struct trace *trace)
{
	pthread_mutex_lock(&comm->lock);
	comm->trace = trace;
	pthread_mutex_unlock(&comm->lock);
}

double comm_busy(struct comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	double busy = comm->busy;
	pthread_mutex_unlock(&comm->lock);
	return busy;
}

void comm_abort(struct comm *comm, const char *why)
{
	comm_fail(comm, FAILURE_ABORT, why);
}

struct standing_operation comm_standing(struct comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	struct standing_operation now = comm->now;
	pthread_mutex_unlock(&comm->lock);
	return now;
}

void comm_stand(struct comm *comm, struct standing *standing)
{
	pthread_mutex_lock(&comm->lock);
	comm->standing = standing;
	pthread_mutex_unlock(&comm->lock);
}

bool comm_last_words(struct comm *comm, int rank, unsigned char record[STANDING_SIZE], double *now)
{
	pthread_mutex_lock(&comm->lock);
	bool left = comm->left;
	pthread_mutex_unlock(&comm->lock);
	if (!left || rank != comm->rank)
		return left && comm->provider->said(comm->state, rank, record, now);
	memcpy(record, comm->last_words, STANDING_SIZE);
	*now = comm->left_at;
	return true;
}

const char *comm_provider(const struct comm *comm)
{
	return comm->provider->name;
}

int comm_rank(const struct comm *comm)
{
	return comm->rank;
}

int comm_size(const struct comm *comm)
{
	return comm->size;
}

const char *comm_peer(const struct comm *comm, int rank)
{
	return comm->provider->peer(comm->state, rank);
}

/* The provider by name, or the fitting one. */
static const struct comm_provider *choose(const char *name, int world_size, struct err *err)
{
	if (name && strcmp(name, "gloo") != 0 && strcmp(name, "single") != 0) {
		err_fail(err, EXIT_USAGE, "comm: there is no provider \"%s\"; use gloo or single", name);
		return NULL;
	}
	if (world_size == 1)
		return &comm_single;
	if (name && strcmp(name, "single") == 0) {
		err_fail(err, EXIT_USAGE, "comm: provider \"single\" is for a world of one, and this has %d ranks; use gloo",
			world_size);
		return NULL;
	}
#ifdef HAVE_GLOO
	return &comm_gloo;
#else
	err_fail(err, EXIT_USAGE, "comm: couldn't connect %d ranks: this build has no communicator for several ranks; "
		"install libgloo-dev and configure without --without-gloo", world_size);
	return NULL;
#endif
}

static void free_comm(struct comm *comm)
{
	while (comm->head) {
		struct comm_op *op = comm->head;
		comm->head = op->next;
		free(op);
	}
	pthread_cond_destroy(&comm->wake);
	pthread_cond_destroy(&comm->settled);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

static struct comm *alloc_comm(const struct ident *ident, double deadline)
{
	struct comm *comm = calloc(1, sizeof *comm);

	if (!comm)
		return NULL;
	comm->rank = ident->rank;
	comm->size = ident->world_size;
	comm->deadline = deadline;
	comm->bucket = -1;
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->wake, NULL);
	deadline_condition(&comm->settled);
	return comm;
}

/* Opens the provider and starts the thread. */
static int start(struct comm *comm, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	struct comm_events events = { .arg = comm, .progress = on_progress, .lost = on_lost };

	comm->state = comm->provider->open(ident, rdzv, &events, err);
	if (!comm->state)
		return -1;
	int rc = thread_start(&comm->thread, run_thread, comm);
	if (rc != 0) {
		comm->provider->leave(comm->state, "its communication thread did not start", comm->last_words);
		comm->provider->close(comm->state);
		return err_set(err, "comm: couldn't start a thread: %s", strerror(rc));
	}
	return 0;
}

struct comm *comm_open(const struct ident *ident, struct rdzv *rdzv, const char *provider, double deadline,
	struct err *err)
{
	const struct comm_provider *chosen = choose(provider, ident->world_size, err);
	if (!chosen)
		return NULL;
	struct comm *comm = alloc_comm(ident, deadline);
	if (!comm) {
		err_set(err, "comm: couldn't open a communicator: out of memory");
		return NULL;
	}
	comm->provider = chosen;

	/* The provider's threads, too. */
	sigset_t before;
	thread_block_signals(&before);
	int rc = start(comm, ident, rdzv, err);
	thread_restore_signals(&before);
	if (rc < 0) {
		free_comm(comm);
		return NULL;
	}
	return comm;
}

void comm_close(struct comm *comm)
{
	if (!comm)
		return;
	pthread_mutex_lock(&comm->lock);
	bool busy = comm->done != comm->last;
	comm->closing = true;
	pthread_cond_broadcast(&comm->wake);
	pthread_mutex_unlock(&comm->lock);
	if (busy)
		comm_fail(comm, FAILURE_ABORT, "closed with operations in flight");
	pthread_join(comm->thread, NULL);
	comm->provider->close(comm->state);
	free_comm(comm);
}
