/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder: where a rank stands, that is, what its training thread does, and which
 * collective of which bucket of which step its communicator is in. From flight_keep() on it lies in
 * a small mapped file (doc/flight-recorder-format.md), so that it can be read after the process was
 * killed. Writing costs no system call. */
#ifndef MUSTER_FLIGHT_H
#define MUSTER_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/ident.h"

#define FLIGHT_SIZE 1280 /* bytes of a record, in a file and in a message */

struct flight_recorder;

/* What the training thread does. The numbers are part of the format, and of lib/muster.h. */
enum flight_phase {
	FLIGHT_START = 1, /* everything before the first step */
	FLIGHT_DATA,      /* takes the next microbatch */
	FLIGHT_COMPUTE,   /* forward and backward of a slot */
	FLIGHT_REDUCE,    /* the end of the reduction */
	FLIGHT_UPDATE,
	FLIGHT_VALIDATE,
	FLIGHT_SAVE,  /* hands a save over */
	FLIGHT_CLOSE, /* the end of the run: the last save, and the fence before all leave */
	/* of programs with libmuster, which have no slots */
	FLIGHT_FORWARD,
	FLIGHT_BACKWARD,
	FLIGHT_STEP,   /* the rest of a step */
	FLIGHT_WORD,   /* waits for the words of the other ranks about the step before (muster_word) */
	FLIGHT_SAMPLE, /* of muster-train: writes a sample text */
	FLIGHT_PHASES
};

/* A collective. Times, here and below, are seconds of the writer's clock_now(). */
struct flight_operation {
	char operation[16]; /* "exchange", "all-gather", …; "" for none */
	char label[64];     /* the caller's, such as "early pieces of bucket 3 of step 17" */
	uint64_t step;      /* 0: outside of any step */
	int bucket;         /* -1: none */
	uint64_t bytes;     /* of its buffers on this rank */
	double entered;
};

/* A record as it was read. */
struct flight_view {
	int rank, world_size, attempt;
	uint32_t process;
	char node[64], run[64]; /* `run` is the same on all ranks of an attempt */
	double wall;            /* add it to a time of the record to get seconds since the epoch */

	enum flight_phase phase; /* 0: not known */
	uint64_t step;           /* of the phase; 0: outside of any step */
	int slot;                /* -1: none */
	double since;
	double waits; /* since when the training thread waits; 0: it does not */

	struct flight_operation now;      /* that the communicator is in */
	struct flight_operation finished; /* the latest complete one */
	double finished_at;               /* when that was complete */
};

/* Creates a recorder in this process's own memory. NULL when out of memory. The functions below
 * accept NULL, for a run without one. */
struct flight_recorder *flight_create(const struct ident *ident, struct err *err);
/* Moves the record to the file `name` in the folder, which is created or replaced. On error it
 * stays in memory. */
int flight_keep(struct flight_recorder *flight, int dirfd, const char *name, struct err *err);
void flight_destroy(struct flight_recorder *flight);
/* Creates the file with these bytes; it gets its name only when it is whole. Returns a descriptor
 * for reading and writing; -1 on error. */
int flight_create_file(int dirfd, const char *name, const unsigned char bytes[FLIGHT_SIZE],
	struct err *err);

/* Training thread: notes what it begins. slot: -1 for none. */
void flight_begin(struct flight_recorder *flight, enum flight_phase phase, uint64_t step, int slot);
/* Training thread: notes whether it waits for the communicator. */
void flight_wait(struct flight_recorder *flight, bool waits);
/* Communicator's thread: an operation begins; the operation begun last is complete. */
void flight_enter(struct flight_recorder *flight, const struct flight_operation *operation);
void flight_finish(struct flight_recorder *flight);

/* Any thread: copies the record as it is now, for flight_read(). */
void flight_copy(const struct flight_recorder *flight, unsigned char out[FLIGHT_SIZE]);

/* Reads a record from any source. Skips an entry that was only half written when the writer
 * stopped; the one before it counts. -1 with status EXIT_DATA and the reason if these bytes are no
 * record. */
int flight_read(const void *bytes, size_t size, struct flight_view *view, struct err *err);

/* Words where the rank stands, without times: "computing slot 3 of step 17", "waiting in exchange
 * of bucket 3 of step 17". Returns since when, on the writer's clock; 0 if nothing is known. */
double flight_words(const struct flight_view *view, char *out, size_t size);

/* The same in one line with all that is known, as of the writer's time `now`. */
void flight_line(const struct flight_view *view, double now, char *out, size_t size);

/* When the record changed last, on the writer's clock; 0 if nothing is known. */
double flight_latest(const struct flight_view *view);

#endif
