/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank stands: what its training thread does, and which collective of which bucket of which
 * step its communicator is in. Kept in memory that is a small mapped file from flight_keep() on
 * (doc/flight-recorder-format.md), so that it can be read after the process was killed. Writing
 * costs no system call. */
#ifndef MUSTER_FLIGHT_H
#define MUSTER_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

#define FLIGHT_SIZE 1280 /* bytes of a record, in a file and in a message */

struct flight_recorder;

/* What the training thread does. The numbers are the format's. */
enum flight_phase {
	FLIGHT_START = 1, /* everything before the first step */
	FLIGHT_DATA,      /* it takes the next microbatch of a slot */
	FLIGHT_COMPUTE,   /* forward and backward of a slot */
	FLIGHT_REDUCE,    /* the end of the reduction */
	FLIGHT_UPDATE,
	FLIGHT_VALIDATE,
	FLIGHT_SAVE,  /* it hands a save over */
	FLIGHT_CLOSE, /* the end of the run: the last save, and the meeting before all leave */
	FLIGHT_PHASES
};

/* A collective. Times, here and below, are seconds of the writer's clock_now(). */
struct flight_operation {
	char operation[16]; /* "exchange", "all-gather", …; "" when there is none */
	char label[64];     /* the caller's: "early pieces of bucket 3 of step 17" */
	uint64_t step;      /* 0: outside of any */
	int bucket;         /* -1: of none */
	uint64_t bytes;     /* of its buffers on this rank */
	double entered;
};

/* A record that was read. */
struct flight_view {
	int rank, world_size, attempt;
	uint32_t process;
	char node[64], run[64]; /* `run` is the same text on all ranks of an attempt */
	double wall;            /* to be added to a time of the record for seconds since the epoch */

	enum flight_phase phase; /* 0: not known */
	uint64_t step;           /* of the phase; 0: outside of any */
	int slot;                /* -1: of none */
	double since;
	double waits; /* since when the training thread waits for the communicator; 0: it does not */

	struct flight_operation now;      /* what the communicator stands in */
	struct flight_operation finished; /* the latest one that is complete, */
	double finished_at;               /* and when it was */
};

/* A record in memory of this process alone. NULL when out of memory. Where a function takes one,
 * NULL is a run without. */
struct flight_recorder *flight_create(const struct ident *ident, struct err *err);
/* From now on the record is the file `name` in the folder: created, or replaced. On error it stays
 * in memory. */
int flight_keep(struct flight_recorder *flight, int dirfd, const char *name, struct err *err);
void flight_destroy(struct flight_recorder *flight);
/* Makes the file with these bytes, whole before it has its name. Returns a descriptor that reads
 * and writes; -1 on error. */
int flight_create_file(int dirfd, const char *name, const unsigned char bytes[FLIGHT_SIZE],
	struct err *err);

/* By the training thread: what it begins. slot: -1 for none. */
void flight_begin(struct flight_recorder *flight, enum flight_phase phase, uint64_t step, int slot);
/* By the training thread: whether it waits for the communicator. */
void flight_wait(struct flight_recorder *flight, bool waits);
/* By the communicator's thread: an operation begins; the one that began last is complete. */
void flight_enter(struct flight_recorder *flight, const struct flight_operation *operation);
void flight_finish(struct flight_recorder *flight);

/* By any thread: the record as it is now, for flight_read(). */
void flight_copy(const struct flight_recorder *flight, unsigned char out[FLIGHT_SIZE]);

/* Reads a record, wherever it comes from. An entry that was being written when the writer was
 * stopped is passed over: the one before it counts. Status EXIT_DATA for what is no record, with
 * the reason. */
int flight_read(const void *bytes, size_t size, struct flight_view *view, struct err *err);

/* Where the rank stands, without times: "computing slot 3 of step 17", "waiting in exchange of
 * bucket 3 of step 17". Returns since when (the writer's clock), 0 where nothing is known. */
double flight_words(const struct flight_view *view, char *out, size_t size);

/* The same as one line with everything that is known at the writer's time `now`. */
void flight_line(const struct flight_view *view, double now, char *out, size_t size);

#endif
