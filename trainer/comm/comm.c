/* SPDX-License-Identifier: Apache-2.0 */
/* The callers' side of the communicator: it is opened, waited for and closed. A thread that waits
 * for a ticket also watches the deadline and looks for lost peers, since the communicator's own
 * thread is blocked in an operation. */
#include "config.h"

#include "trainer/comm/comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/thread.h"
#include "trainer/comm/comm_private.h"
#include "telemetry/trace.h"

#define WATCH_SECONDS 0.05 /* how often a waiter looks at peers and the deadline */
#define LEAVE_SECONDS 10.0 /* waiters give up a communicator's thread that has not left by then */

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
	comm_record_failure(comm, FAILURE_LOST, EXIT_LOST, why);
	pthread_mutex_unlock(&comm->lock);
}

void comm_place(struct comm *comm, uint64_t step, int bucket)
{
	pthread_mutex_lock(&comm->lock);
	comm->step = step;
	comm->bucket = bucket;
	pthread_mutex_unlock(&comm->lock);
}

/* Checks once, without the lock, for lost peers and the deadline. `progress`: when something moved
 * last. */
static void watch(struct comm *comm, bool running, double progress)
{
	struct err err;

	if (!running)
		return;
	if (comm->provider->check(comm->state, &err) < 0) {
		comm_fail(comm, FAILURE_LOST, EXIT_LOST, err.text);
	} else if (clock_now() - progress > comm->deadline) {
		char why[80];
		snprintf(why, sizeof why, "no progress for %.1f s", clock_now() - progress);
		comm_fail(comm, FAILURE_DEADLINE, EXIT_LOST, why);
	}
}

/* Sleeps until something is settled, but not past the next look at peers and the deadline. */
static void wait_settled(struct comm *comm)
{
	struct timespec until = deadline_timespec(deadline_in(WATCH_SECONDS));

	pthread_cond_timedwait(&comm->settled, &comm->lock, &until);
}

/* Called with the lock held, and gives it up while it watches. `begun`: when the wait began.
 * Returns as comm_wait(). */
static int wait_done(struct comm *comm, comm_ticket ticket, double begun, struct err *err)
{
	for (;;) {
		if (comm->failure == FAILURE_NONE && comm->done >= ticket)
			return 0;
		if (comm->failure != FAILURE_NONE
			&& (comm->left || clock_now() - comm->failed_at > LEAVE_SECONDS))
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
		return err_set(err, "comm: couldn't wait for ticket %llu: it was never given",
			(unsigned long long)ticket);
	}
	bool waits = comm->failure == FAILURE_NONE && comm->done < ticket;
	if (waits)
		flight_wait(comm->flight, true);
	int rc = wait_done(comm, ticket, clock_now(), err);
	if (waits && rc == 0) /* after a failure the record keeps where it stood */
		flight_wait(comm->flight, false);
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
	comm_fail(comm, FAILURE_ABORT, EXIT_LOST, why);
}

struct flight_operation comm_flight(struct comm *comm)
{
	pthread_mutex_lock(&comm->lock);
	struct flight_operation now = comm->now;
	pthread_mutex_unlock(&comm->lock);
	return now;
}

void comm_stand(struct comm *comm, struct flight_recorder *flight)
{
	pthread_mutex_lock(&comm->lock);
	comm->flight = flight;
	pthread_mutex_unlock(&comm->lock);
}

bool comm_last_words(struct comm *comm, int rank, unsigned char record[FLIGHT_SIZE], double *now)
{
	pthread_mutex_lock(&comm->lock);
	bool left = comm->left;
	pthread_mutex_unlock(&comm->lock);
	if (!left || rank != comm->rank)
		return left && comm->provider->said(comm->state, rank, record, now);
	memcpy(record, comm->last_words, FLIGHT_SIZE);
	*now = comm->left_at;
	return true;
}

const char *comm_provider(const struct comm *comm)
{
	return comm->provider->name;
}

const char *comm_library(const struct comm *comm)
{
	return comm->provider->text ? comm->provider->text(comm->state) : NULL;
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

/* The provider of this name; NULL: the one that fits the world size. */
static const struct comm_provider *choose(const char *name, int world_size, struct err *err)
{
	if (name && strcmp(name, "tcp") != 0 && strcmp(name, "single") != 0) {
		err_fail(err, EXIT_USAGE, "comm: there is no provider \"%s\"; use tcp or single", name);
		return NULL;
	}
	if (world_size == 1)
		return &comm_single;
	if (name && strcmp(name, "single") == 0) {
		err_fail(err, EXIT_USAGE,
			"comm: provider \"single\" is for a world of one, and this has %d ranks; use tcp",
			world_size);
		return NULL;
	}
	return &comm_tcp;
}

static void free_comm(struct comm *comm)
{
	while (comm->head) {
		struct comm_op *op = comm->head;
		comm->head = op->next;
		comm_op_free(op);
	}
	pthread_cond_destroy(&comm->wake);
	pthread_cond_destroy(&comm->settled);
	pthread_mutex_destroy(&comm->lock);
	free(comm);
}

static struct comm *alloc_comm(const struct comm_provider *provider, const struct ident *ident,
	double deadline)
{
	struct comm *comm = calloc(1, sizeof *comm);

	if (!comm)
		return NULL;
	*comm = (struct comm) { .provider = provider,
		.rank = ident->rank,
		.size = ident->world_size,
		.deadline = deadline,
		.bucket = -1 };
	pthread_mutex_init(&comm->lock, NULL);
	pthread_cond_init(&comm->wake, NULL);
	deadline_condition(&comm->settled);
	return comm;
}

/* Opens the provider and starts the communicator's thread. */
static int start(struct comm *comm, const struct ident *ident, struct rdzv *rdzv, struct err *err)
{
	struct comm_events events = { .arg = comm,
		.progress = on_progress,
		.computing = comm_note_computing,
		.lost = on_lost };

	comm->state = comm->provider->open(ident, rdzv, &events, err);
	if (!comm->state)
		return -1;
	int rc = thread_start(&comm->thread, comm_run, comm);
	if (rc != 0) {
		comm->provider->leave(comm->state, "its communication thread did not start",
			comm->last_words);
		comm->provider->close(comm->state);
		return err_set(err, "comm: couldn't start a thread: %s", strerror(rc));
	}
	return 0;
}

struct comm *comm_open(const struct ident *ident, struct rdzv *rdzv, const char *provider,
	double deadline, struct err *err)
{
	const struct comm_provider *chosen = choose(provider, ident->world_size, err);

	return chosen ? comm_open_over(chosen, ident, rdzv, deadline, err) : NULL;
}

struct comm *comm_open_over(const struct comm_provider *chosen, const struct ident *ident,
	struct rdzv *rdzv, double deadline, struct err *err)
{
	struct comm *comm = alloc_comm(chosen, ident, deadline);
	if (!comm) {
		err_set(err, "comm: couldn't open a communicator: out of memory");
		return NULL;
	}
	/* Threads inherit the signal mask: blocked here, signals are blocked in the provider's threads,
	 * too. */
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

struct attachment {
	struct comm *comm;
	void *stream;
};

static int attach(void *arg, struct err *err)
{
	const struct attachment *attachment = arg;

	return attachment->comm->provider->attach(attachment->comm->state, attachment->stream, err);
}

int comm_attach(struct comm *comm, struct device *device, struct err *err)
{
	struct attachment attachment = { .comm = comm };

	if (!device->comm_stream || comm->size == 1)
		return 0;
	if (!comm->provider->attach)
		return err_fail(err, EXIT_USAGE,
			"comm: couldn't reduce gradients on GPUs: provider \"%s\" carries the host's memory "
			"only",
			comm->provider->name);
	attachment.stream = device->comm_stream(device, err);
	if (!attachment.stream)
		return -1;
	comm->device = device;
	return comm_wait(comm, comm_call(comm, "the GPU", attach, &attachment), err);
}

/* Before this rank's own goodbye is on its way, its end would be taken for a death. */
void comm_hang_up(struct comm *comm, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	struct timespec until = deadline_timespec(deadline);

	pthread_mutex_lock(&comm->lock);
	while (!comm->left && pthread_cond_timedwait(&comm->settled, &comm->lock, &until) != ETIMEDOUT)
		;
	bool left = comm->left;
	pthread_mutex_unlock(&comm->lock);
	if (left && comm->provider->hang_up)
		comm->provider->hang_up(comm->state, deadline_left(deadline));
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
		comm_fail(comm, FAILURE_ABORT, EXIT_LOST, "closed with operations in flight");
	pthread_join(comm->thread, NULL);
	comm->provider->close(comm->state);
	free_comm(comm);
}
