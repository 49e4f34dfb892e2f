/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a communicator, shared by comm.c, where threads open, wait and close;
 * comm_collective.c, which composes collectives; comm_run.c, where operations are queued and run;
 * and comm_failure.c, which words the failure. Each calls only those after it. */
#ifndef MUSTER_COMM_PRIVATE_H
#define MUSTER_COMM_PRIVATE_H

#include <pthread.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/comm_provider.h"
#include "trainer/ops/device.h"

/* How far an operation has come. */
enum comm_op_state { COMM_OP_QUEUED, COMM_OP_BEGUN, COMM_OP_SUMMED };

/* One queued operation: a call, an exchange, a reduction, or a collective that is composed of
 * exchanges. */
struct comm_op {
	struct comm_op *next;
	comm_ticket ticket;
	const char *operation;
	char label[64];
	enum comm_op_state state;
	/* A collective's; NULL: its transfers are one exchange. */
	int (*run)(struct comm *comm, struct comm_op *op, struct err *err);
	comm_work *work;
	struct device *device; /* whose memory may hold the buffers; NULL: none */
	uint64_t event;        /* after what was queued on the device before this operation */
	bool reduction;        /* may begin before the operations ahead of it have ended */
	bool ahead;            /* also before they are summed; may sum before they have ended */
	comm_ticket after;     /* but not before this one is done */
	comm_prepare *prepare; /* NULL: nothing to do */
	comm_add *add;         /* NULL: nothing is summed */
	void *arg;             /* for work, prepare and add */
	struct comm_sums sums;
	void *exchange; /* the provider's, from its begin to its finish; NULL: none */
	int root;
	const void *source;
	void *buffer;
	void *scratch; /* owned; the provider may use a part of it until it has left */
	size_t bytes;
	uint64_t sent; /* bytes since the last traced part; a sum counts as sent once it is made */
	uint64_t step; /* that it belongs to */
	int bucket;    /* that it belongs to; -1: none */
	double queued; /* clock_now() when operations are traced, else 0 */
	int count;
	struct comm_transfer
		transfers[]; /* copied, or composed as it runs; those of the sums come last */
};

enum failure { FAILURE_NONE, FAILURE_DEADLINE, FAILURE_LOST, FAILURE_ABORT, FAILURE_FAULT };

struct comm {
	const struct comm_provider *provider;
	void *state;
	int rank, size;
	double deadline;
	struct device *device; /* attached; only the queueing thread reads it; NULL: none */
	bool stopping;         /* atomic: something has failed */
	double untraced;       /* the communicator's thread: where the part of the operation that is not
							  traced yet began; 0 without a trace */
	pthread_t thread;
	pthread_mutex_t lock; /* guards all below */
	pthread_cond_t wake;  /* wakes the communicator's thread: an operation, a failure or the end */
	pthread_cond_t settled;      /* wakes waiters: a ticket is done, or the thread has left */
	struct comm_op *head, *tail; /* queued; the head is the running one, if any runs */
	comm_ticket last, done;
	struct flight_operation now;    /* `operation` is "" when idle */
	const char *latest;             /* the operation that began last; its label is still in `now` */
	struct flight_recorder *flight; /* NULL: none */
	uint64_t step;                  /* of the operations queued next */
	int bucket;                     /* of the operations queued next */
	unsigned char last_words[FLIGHT_SIZE];
	double left_at;      /* time of the last words */
	double progress;     /* when bytes moved last */
	double busy;         /* seconds that finished operations took */
	struct trace *trace; /* NULL: none */
	bool closing, worded, left;
	enum failure failure;
	double failed_at;
	struct err error; /* of the failure; complete once `left` */
	size_t reason;    /* where in it the reason begins, after what this rank did meanwhile */
};

/* comm_run.c. Notes that this rank's own device has not reached the running operation: no peer is
 * late, and nothing is communicated yet. */
void comm_note_computing(void *comm);

/* Queues a copy of an operation, which has room for `room` transfers. */
comm_ticket comm_queue(struct comm *comm, const char *label, int room, const struct comm_op *op);
/* One that has failed, only after the provider has left. */
void comm_op_free(struct comm_op *op);
/* The body of the communicator's thread; its argument is the communicator. */
void *comm_run(void *comm);

/* The failure (comm_failure.c). With the lock held, but for comm_fail. Only the first one counts;
 * true if this is the first: the provider must then be interrupted, without the lock. */
bool comm_record_failure(struct comm *comm, enum failure failure, enum exit_status status,
	const char *why);
/* Records a failure, and interrupts the provider. */
void comm_fail(struct comm *comm, enum failure failure, enum exit_status status, const char *why);
/* Records the running operation's failure, and words it: which operation, of what, after how long,
 * and then the reason. */
void comm_fail_op(struct comm *comm, enum failure failure, const struct err *err);
/* The communicator's last words: says so where no operation was running. */
void comm_word_idle_failure(struct comm *comm);
/* After the provider's leave: adds to the error the ranks that said no goodbye, where the provider
 * can't tell which rank was waited for, or where the error also names ranks that did, besides the
 * one whose reason it is. */
void comm_name_silent(struct comm *comm);

#endif
