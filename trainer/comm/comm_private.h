/* SPDX-License-Identifier: Apache-2.0 */
/* The state of struct comm, shared by its files: whoever queues and waits, and the thread that runs
 * what is queued. */
#ifndef MUSTER_COMM_PRIVATE_H
#define MUSTER_COMM_PRIVATE_H

#include <pthread.h>

#include "trainer/comm/comm_op.h"
#include "trainer/comm/comm_provider.h"
#include "trainer/ops/ops.h"

enum failure { FAILURE_NONE, FAILURE_DEADLINE, FAILURE_LOST, FAILURE_ABORT, FAILURE_FAULT };

struct comm {
	const struct comm_provider *provider;
	void *state;
	int rank, size;
	double deadline;
	struct ops *ops; /* attached, the queueing thread's to know; NULL: none */
	bool stopping;   /* atomic: something has failed */
	pthread_t thread;
	pthread_mutex_t lock;   /* of all below */
	pthread_cond_t wake;    /* for the thread: an operation, a failure or the end */
	pthread_cond_t settled; /* for waiters: a ticket is done, or the thread has left */
	struct comm_op *head, *tail;
	comm_ticket last, done;
	struct flight_operation now;    /* its `operation` is "" when idle */
	const char *latest;             /* the operation begun last; its label is still in `now` */
	struct flight_recorder *flight; /* the record; NULL: none */
	uint64_t step;                  /* of the operations queued next, */
	int bucket;                     /* and their bucket */
	unsigned char last_words[FLIGHT_SIZE];
	double left_at;      /* when they were said */
	double progress;     /* when bytes moved last */
	double busy;         /* seconds of all operations that are done */
	struct trace *trace; /* NULL: none */
	bool closing, worded, left;
	enum failure failure;
	double failed_at;
	struct err error; /* of the failure; complete when `left` */
};

/* With the lock held. The first failure counts. Returns whether this was it; then the caller
 * interrupts the provider, without the lock. */
bool comm_record_failure(struct comm *comm, enum failure failure, enum exit_status status,
	const char *why);

/* This rank's own device has yet to come to the operation that is running: no peer is late, and
 * nothing is communicated yet. */
void comm_note_computing(void *comm);

/* The thread's body; its argument is the communicator (comm_run.c). */
void *comm_run(void *comm);

#endif
