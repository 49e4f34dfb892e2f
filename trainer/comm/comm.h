/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks talk: grouped send and receive, all-gather, all-reduce and broadcast, executed in the
 * order of the calls on the communicator's own thread (TCP) or stream (NCCL). Each call returns at
 * once with a ticket, its done event. */
#ifndef MUSTER_COMM_H
#define MUSTER_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "trainer/telemetry/flight.h"

struct comm;
struct comm_provider;
struct ops;
struct trace;
typedef uint64_t comm_ticket;

/* A one-way transfer within a group; 0-byte ones are allowed. */
struct comm_transfer {
	int peer;
	void *buffer;
	size_t bytes;
	int receive; /* 0: send */
};

/* `provider`: "tcp", "single" (a world of one only) or NULL for the fitting one. Opening it takes
 * no longer than twice the deadline of `rdzv`. NULL on error (EXIT_LOST names the ranks that did
 * not come).
 *
 * `deadline`, in seconds, is how long this rank waits while nothing moves. It is counted only
 * inside comm_wait(), from the latest of: the beginning of that wait; the beginning of the
 * operation that is running; the last bytes that moved in it. So an operation that is queued early
 * may stand for any time while its ranks compute. A peer that comes to an operation later than the
 * others by more than the deadline ends the run, also if it lives and computes: its last words then
 * say so (comm_last_words), where a rank that is stopped or cut off has none. */
struct comm *comm_open(const struct ident *ident, struct rdzv *rdzv, const char *provider,
	double deadline, struct err *err);
/* The same over a provider (comm_provider.h) that is chosen already. */
struct comm *comm_open_over(const struct comm_provider *provider, const struct ident *ident,
	struct rdzv *rdzv, double deadline, struct err *err);
/* From now on buffers may also be memory of these operations' device; those of one operation are of
 * one kind, on all ranks the same. What the communicator's thread calls of them is queued on a
 * stream of its own (ops.h). The ops are to outlive the communicator. Nothing to do where the host
 * can touch their memory, or in a world of one. */
int comm_attach(struct comm *comm, struct ops *ops, struct err *err);
/* Ends the thread and the connections; an operation in flight fails. NULL is allowed. */
void comm_close(struct comm *comm);
const char *comm_provider(const struct comm *comm);
/* What carries a device's memory, with its version, as "NCCL 2.28.9"; NULL: nothing does. Borrowed.
 */
const char *comm_library(const struct comm *comm);
int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
/* "rank 3 on node7", for messages. Borrowed. */
const char *comm_peer(const struct comm *comm, int rank);

/* The buffers belong to the operation until its ticket is done. `work`, when not NULL, runs on the
 * communicator's thread right after the operation (the canonical addition, for instance), before
 * the ticket is done. The data must be ready at the call; on a device, where the ops are attached,
 * it may still be in the making by what this thread has queued before. */
typedef int comm_work(void *arg, struct err *err);
comm_ticket comm_exchange(struct comm *comm, const char *label,
	const struct comm_transfer *transfers, int count, comm_work *work, void *arg);
/* A reduction, or a part of one. The pieces travel as in comm_exchange. As soon as a run of bytes
 * has come from all who send this rank some, `make` makes the sum of that run; it goes on at once
 * with those of the `sums` that are sent, while the next run is on its way. Runs come in ascending
 * order, until all is made. What is received of the pieces, and what is sent of the sums, is
 * equally long. A sum may be received where the piece of it was sent from: its owner has that by
 * then. One behind another begins once the sums of that are made, though they still travel: so it
 * may receive pieces where that did, but may not send what that receives. */
typedef void comm_prepare(void *arg);
typedef int comm_make(void *arg, size_t first, size_t bytes, struct err *err);
struct comm_reduction {
	const struct comm_transfer *pieces, *sums;
	int piece_count, sum_count;
	comm_prepare
		*prepare;    /* on the communicator's thread before a piece is sent; NULL: nothing to do */
	comm_make *make; /* likewise; NULL: nothing is made */
	void *arg;       /* of both */
};
comm_ticket comm_reduce(struct comm *comm, const char *label,
	const struct comm_reduction *reduction);
/* all[size · bytes] gets every rank's bytes in rank order; `mine` may be its place in `all`. */
comm_ticket comm_allgather(struct comm *comm, const char *label, const void *mine, void *all,
	size_t bytes);
/* Sum over a ring (for --reduction native; the bits depend on the world size). */
comm_ticket comm_allreduce(struct comm *comm, const char *label, float *buffer, size_t count);
/* The same with half the bytes: partial sums are rounded to bf16 wherever they travel, and the
 * result everywhere alike. */
comm_ticket comm_allreduce_bf16(struct comm *comm, const char *label, float *buffer, size_t count);
comm_ticket comm_broadcast(struct comm *comm, const char *label, void *buffer, size_t bytes,
	int root);
/* Only the work, in its turn. */
comm_ticket comm_call(struct comm *comm, const char *label, comm_work *work, void *arg);
/* Nothing, in its turn: the trace tells when it would have been queued. */
comm_ticket comm_mark(struct comm *comm, const char *label);

/* Which step and bucket (-1: none) the operations belong to that the training's thread queues from
 * now on, for the record. */
void comm_place(struct comm *comm, uint64_t step, int bucket);

/* Waits for a ticket and all before it. After a failure every call and wait gives the first error.
 * Status EXIT_LOST names operation, label, seconds and the peers that did not answer, as far as the
 * provider knows. */
int comm_wait(struct comm *comm, comm_ticket ticket, struct err *err);
/* Whether nothing has failed so far; else -1 with the error, as comm_wait() gives it. For one who
 * computes for long. */
int comm_check(struct comm *comm, struct err *err);
/* Fails what is in flight and all that follows; the text is the reason. */
void comm_abort(struct comm *comm, const char *why);
/* Records each operation, each work and each comm_wait of the training's thread from now on; NULL:
 * no more. Not while an operation is in flight. */
void comm_trace(struct comm *comm, struct trace *trace);
/* Seconds that operations and works have taken so far, on the communicator's thread. */
double comm_busy(struct comm *comm);
/* What the communicator's thread stands in now. */
struct flight_operation comm_flight(struct comm *comm);
/* Where the rank stands is written to `flight` from now on: operations by the communicator's
 * thread, waits by that which waits. Borrowed; NULL: no more. */
void comm_stand(struct comm *comm, struct flight_recorder *flight);
/* After a failure, when comm_wait() has told it: the record with which a rank, this one included,
 * took its leave, and its clock then. False where it said nothing, as one that is stopped, dead or
 * cut off. */
bool comm_last_words(struct comm *comm, int rank, unsigned char record[FLIGHT_SIZE], double *now);

#endif
