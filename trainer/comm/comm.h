/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator: how ranks exchange data. Grouped sends and receives, all-gather, all-reduce and
 * broadcast run in the order of the calls, on the communicator's own thread (TCP) or stream
 * (NCCL), so that the training computes meanwhile. Each call returns at once with a ticket, which
 * comm_wait() waits for. */
#ifndef MUSTER_COMM_H
#define MUSTER_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "telemetry/flight.h"

struct comm;
struct comm_provider;
struct device;
struct trace;
typedef uint64_t comm_ticket;

/* One send or receive within a group; 0 bytes are allowed. */
struct comm_transfer {
	int peer;
	void *buffer;
	size_t bytes;
	int receive; /* 0: send */
};

/* Opens a communicator over all ranks of `ident`. `provider`: "tcp", "single" (a world of one
 * only) or NULL for the one that fits. Takes at most the deadline of `rdzv`. NULL on error
 * (EXIT_LOST names the ranks that did not come).
 *
 * `deadline`, in seconds, is how long this rank waits while nothing moves. It is counted only
 * inside comm_wait(), from the latest of: the beginning of that wait; the beginning of the running
 * operation; the last bytes that moved in it. So an operation that is queued early may wait for any
 * time while its ranks compute. A peer that comes to an operation later than the others by more
 * than the deadline ends the run, even if it is alive and computing; its last words then say so
 * (comm_last_words), while a rank that is stopped or cut off has none. */
struct comm *comm_open(const struct ident *ident, struct rdzv *rdzv, const char *provider,
	double deadline, struct err *err);
/* As comm_open(), over a provider (comm_provider.h) that is already chosen. */
struct comm *comm_open_over(const struct comm_provider *provider, const struct ident *ident,
	struct rdzv *rdzv, double deadline, struct err *err);
/* From now on buffers may also lie in the device's memory. All buffers of one operation
 * lie in one kind of memory, the same on all ranks. Ops that the communicator's thread calls are
 * queued on the communicator's stream (device.h). The device must outlive the communicator. Does
 * nothing where the host can touch its memory, or in a world of one. */
int comm_attach(struct comm *comm, struct device *device, struct err *err);
/* Ends the thread and the connections; an operation in flight fails. `comm` may be NULL. */
void comm_close(struct comm *comm);
const char *comm_provider(const struct comm *comm);
/* The library that carries device memory, with its version, as "NCCL 2.28.9"; NULL where none does.
 * Borrowed. */
const char *comm_library(const struct comm *comm);
int comm_rank(const struct comm *comm);
int comm_size(const struct comm *comm);
/* "rank 3 on node7", for messages. Borrowed. */
const char *comm_peer(const struct comm *comm, int rank);

/* Queues grouped sends and receives. The buffers belong to the operation until its ticket is done.
 * `work`, when not NULL, runs on the communicator's thread right after the operation and before the
 * ticket is done (the canonical addition, for instance). The data must be ready at the call; on a
 * device, where one is attached, earlier work that this thread has queued may still be producing
 * it. */
typedef int comm_work(void *arg, struct err *err);
comm_ticket comm_exchange(struct comm *comm, const char *label,
	const struct comm_transfer *transfers, int count, comm_work *work, void *arg);
/* A reduction, or a part of one. The pieces travel as in comm_exchange. As soon as a run of bytes
 * has come from every peer that sends this rank a piece, `add` computes the sum of that run, and
 * the transfers of `sums` that send pass it on at once, while the next run is on its way. Runs come
 * in ascending order, until the whole sum is made. Pieces received and sums sent have the same
 * length. A sum may be received into the memory that its piece was sent from: the owner of the sum
 * has the piece by then. A reduction that is queued after another one begins once the other's sums
 * are made, though these still travel: so it may receive pieces into the same memory, but must not
 * send what the other receives. */
typedef void comm_prepare(void *arg);
typedef int comm_add(void *arg, size_t first, size_t bytes, struct err *err);
struct comm_reduction {
	const struct comm_transfer *pieces, *sums;
	int piece_count, sum_count;
	comm_prepare
		*prepare;  /* on the communicator's thread before a piece is sent; NULL: nothing to do */
	comm_add *add; /* on the communicator's thread; NULL: this rank sums nothing */
	void *arg;     /* for both functions */
	bool ahead; /* it needs nothing of the reduction before it, and has no sums that travel: it may
				   begin before the other is summed, and sums while the other's sums travel */
	comm_ticket after; /* it does not begin before that one is done; 0: it need not wait */
};
comm_ticket comm_reduce(struct comm *comm, const char *label,
	const struct comm_reduction *reduction);
/* Among up to so many ranks an all-gather and a broadcast take one step, in which each rank sends
 * to each; among more, log2(size) steps, in each of which it sends to one. */
#define COMM_DIRECT 16
/* all[size · bytes] gets every rank's bytes in rank order; `mine` may be this rank's place in
 * `all`. */
comm_ticket comm_allgather(struct comm *comm, const char *label, const void *mine, void *all,
	size_t bytes);
/* Sum over a ring (for --reduction native; the bits depend on the world size). */
comm_ticket comm_allreduce(struct comm *comm, const char *label, float *buffer, size_t count);
/* The same with half the bytes: partial sums are rounded to bf16 wherever they travel, and all
 * ranks get the same rounded result. */
comm_ticket comm_allreduce_bf16(struct comm *comm, const char *label, float *buffer, size_t count);
comm_ticket comm_broadcast(struct comm *comm, const char *label, void *buffer, size_t bytes,
	int root);
/* Runs only `work`, in its turn. */
comm_ticket comm_call(struct comm *comm, const char *label, comm_work *work, void *arg);
/* Does nothing, in its turn: the trace shows when such an operation would have been queued. */
comm_ticket comm_mark(struct comm *comm, const char *label);

/* The step and bucket (-1: none) of the operations that the training's thread queues from now on,
 * for the flight recorder. */
void comm_place(struct comm *comm, uint64_t step, int bucket);

/* Waits for a ticket and all before it. After a failure every call and wait returns the first
 * error. With status EXIT_LOST the error names the operation, its label, the seconds and the peers
 * that did not answer, as far as the provider knows. */
int comm_wait(struct comm *comm, comm_ticket ticket, struct err *err);
/* Returns 0 when nothing has failed so far, else -1 with the error, as comm_wait(). For callers
 * that compute for long between waits. */
int comm_check(struct comm *comm, struct err *err);
/* Fails the operation in flight and all that follow, with this reason. */
void comm_abort(struct comm *comm, const char *why);
/* From now on records each operation, each work and each comm_wait of the training's thread; NULL:
 * stops that. Not while an operation is in flight. */
void comm_trace(struct comm *comm, struct trace *trace);
/* Seconds that operations and works have taken so far, on the communicator's thread. */
double comm_busy(struct comm *comm);
/* The operation that the communicator's thread is in. */
struct flight_operation comm_flight(struct comm *comm);
/* From now on `flight` records where the rank stands: the communicator's thread records its
 * operations, a waiting thread its waits. Borrowed; NULL: stops that. */
void comm_stand(struct comm *comm, struct flight_recorder *flight);
/* After comm_wait() has reported a failure: waits until each rank that took its leave has come
 * here, too, or is gone; at most so many seconds. So no rank's end has the launcher end another one
 * that has yet to tell its reason. */
void comm_hang_up(struct comm *comm, double seconds);
/* After comm_wait() has reported a failure: the flight record with which a rank, this one included,
 * took its leave, and its clock then. False where the rank took no leave, being stopped, dead or
 * cut off. */
bool comm_last_words(struct comm *comm, int rank, unsigned char record[FLIGHT_SIZE], double *now);

#endif
