/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a communicator's provider: blocking operations for the communicator's thread,
 * and ways for other threads to end them. The queue, the tickets, the deadline and the wording of
 * errors are those of comm.c, comm_run.c and comm_failure.c. */
#ifndef MUSTER_COMM_PROVIDER_H
#define MUSTER_COMM_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm.h"

/* What a provider reports. Any of its threads may call these, even before its open has returned,
 * but never while it holds a lock of its own. */
struct comm_events {
	void *arg;
	void (*progress)(void *arg);  /* bytes have moved: the deadline starts anew */
	void (*computing)(void *arg); /* this rank's own device has not reached the operation: it begins
									 now at the earliest */
	void (*lost)(void *arg, const char *why); /* peers are gone; the provider interrupts itself */
};

/* The sums of an exchange: what is made of the bytes that it receives, and travels, too. */
struct comm_sums {
	const struct comm_transfer *transfers; /* none of 0 bytes */
	int count;
};

#define COMM_OF_HOST 1 /* the buffer is host memory, and nothing was done */

/* All functions but interrupt, check and peer are called from one thread at a time. */
struct comm_provider {
	const char *name;
	bool blind; /* a wait can't tell which ranks are missing: those that took no leave are named */
	bool concurrent; /* exchanges with different peers go on side by side: their order need not be
						the same on all ranks */
	/* NULL on error; status EXIT_LOST names the ranks that did not come. */
	void *(*open)(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events,
		struct err *err);
	/* From now on buffers may be memory of the device whose stream `stream` is. Their operations
	 * are queued there, and operations on host memory begin when those before them are complete.
	 * NULL: all memory is the host's. */
	int (*attach)(void *state, void *stream, struct err *err);
	/* An exchange: transfers with other ranks, none of 0 bytes, in three steps. begin() starts
	 * them, and the receives of `sums` (NULL: nothing is summed). With sums, next_run() follows
	 * until there is no run left: it sends the sums of all bytes before `made`, and waits until the
	 * *bytes after these have come from every peer; 0: all sums are made, and another exchange may
	 * begin. finish() waits for the end. A failure of begin() is reported by a later step. On
	 * failure `err` names the missing peers; after an interrupt its text is "waiting for …".
	 * Buffers may be in use until leave() returns. */
	void *(*begin)(void *state, const struct comm_transfer *transfers, int count,
		const struct comm_sums *sums);
	int (*next_run)(void *state, void *exchange, size_t made, size_t *bytes, struct err *err);
	int (*finish)(void *state, void *exchange, struct err *err);
	/* On device memory; COMM_OF_HOST where the buffer is the host's. NULL where attach is. */
	int (*allgather)(void *state, const void *mine, void *all, size_t bytes, struct err *err);
	int (*allreduce)(void *state, float *buffer, size_t count, bool bf16, struct err *err);
	/* Any thread: makes the operation in flight and all that follow fail soon. */
	void (*interrupt)(void *state);
	/* Any thread: -1 with the reason in `err` when a peer is known to be gone. */
	int (*check)(void *state, struct err *err);
	/* Says goodbye to the peers, orderly (`why` NULL) or with the reason, and tells where this rank
	 * stands. Takes a few seconds at most; afterwards only said, hang_up and close are called. */
	void (*leave)(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE]);
	/* After a leave with a reason: waits until each peer hangs up, too, or is gone, at most so many
	 * seconds. NULL: there is nobody. */
	void (*hang_up)(void *state, double seconds);
	/* After leave: whether another rank has said goodbye, with its flight record and its clock
	 * then. */
	bool (*said)(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now);
	void (*close)(void *state);
	/* Any thread: "rank 3 on node7"; lives as long as the state. */
	const char *(*peer)(void *state, int rank);
	/* "NCCL 2.28.9"; NULL where attach is. */
	const char *(*text)(void *state);
};

extern const struct comm_provider comm_single;
extern const struct comm_provider comm_tcp;

#endif
