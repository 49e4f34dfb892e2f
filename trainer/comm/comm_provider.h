/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator's provider does: blocking operations for the communicator's thread, and ways
 * out of them for the others. The queue, the tickets, the deadline and the errors' wording are
 * comm.c's. */
#ifndef MUSTER_COMM_PROVIDER_H
#define MUSTER_COMM_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"
#include "trainer/comm/comm.h"

/* What a provider reports. Both may be called from any of its threads, also before its open has
 * returned, but never while it holds a lock of its own. */
struct comm_events {
	void *arg;
	void (*progress)(void *arg);  /* bytes have moved: the deadline starts anew */
	void (*computing)(void *arg); /* this rank's own device has not come to the operation: it begins
									 now at the earliest */
	void (*lost)(void *arg, const char *why); /* peers are gone; the provider interrupts itself */
};

/* What follows from the bytes that an exchange brings. */
struct comm_sums {
	const struct comm_transfer *transfers; /* none of 0 bytes */
	int count;
	comm_make *make; /* its failure is the exchange's, `err` and all */
	void *arg;
};

#define COMM_OF_HOST 1 /* the buffer is memory of the host: nothing was done */

/* All but interrupt, check and peer are called from one thread at a time. */
struct comm_provider {
	const char *name;
	bool blind; /* a wait can't tell who is missing: those are named that take no leave */
	/* NULL on error; status EXIT_LOST names the ranks that did not come. */
	void *(*open)(const struct ident *ident, struct rdzv *rdzv, const struct comm_events *events,
		struct err *err);
	/* From now on memory may be a device's, of whose stream `stream` is: what happens to such is
	 * queued there, and operations on the host's memory begin when those before them are through.
	 * NULL: all memory is the host's. */
	int (*attach)(void *state, void *stream, struct err *err);
	/* Transfers with other ranks, none of 0 bytes, in three steps: they begin, and `sums` (NULL:
	 * none) are awaited; of what they bring sums are made and sent; and all comes to its end.
	 * Another exchange may begin once this one's sums are made. On a failure, of the beginning in a
	 * later step, `err` says which peers are missing; after an interrupt its text is "waiting for
	 * …". Buffers may be in use until leave() returns. */
	void *(*begin)(void *state, const struct comm_transfer *transfers, int count,
		const struct comm_sums *sums);
	int (*make)(void *state, void *exchange, const struct comm_sums *sums, struct err *err);
	int (*finish)(void *state, void *exchange, struct err *err);
	/* Of a device's memory, or COMM_OF_HOST; NULL with attach. */
	int (*allgather)(void *state, const void *mine, void *all, size_t bytes, struct err *err);
	int (*allreduce)(void *state, float *buffer, size_t count, bool bf16, struct err *err);
	/* Any thread: makes the operation in flight, and all that follow, fail soon. */
	void (*interrupt)(void *state);
	/* Any thread: -1 with the reason in `err` when a peer is known to be gone. */
	int (*check)(void *state, struct err *err);
	/* Takes leave of the peers: orderly (`why` NULL) or with the reason, and says where this rank
	 * stands. Bounded to a few seconds; nothing is called afterwards but said and close. */
	void (*leave)(void *state, const char *why, const unsigned char flight[FLIGHT_SIZE]);
	/* After leave: whether another rank has taken its leave, with which record, and its clock then.
	 */
	bool (*said)(void *state, int rank, unsigned char flight[FLIGHT_SIZE], double *now);
	void (*close)(void *state);
	/* Any thread: "rank 3 on node7"; lives as long as the state. */
	const char *(*peer)(void *state, int rank);
	/* "NCCL 2.28.9"; NULL with attach. */
	const char *(*text)(void *state);
};

extern const struct comm_provider comm_single;
extern const struct comm_provider comm_tcp;

#endif
