/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each attempt of a run: attempts.jsonl and the metrics files put together. */
#ifndef MUSTER_HISTORY_H
#define MUSTER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/attempts.h"

enum history_end {
	HISTORY_FINISHED, /* status 0 */
	HISTORY_STOPPED,  /* after a notice, and checkpointed: status 75 */
	HISTORY_LOST,     /* a peer or the disk: status 69 */
	HISTORY_FAILED,   /* any other status */
	HISTORY_KILLED,   /* there is no record of its end */
	HISTORY_RUNNING,  /* the same, but it is the last one and its directory is in use */
};

/* One attempt. */
struct history_row {
	uint32_t job;
	int attempt;       /* Slurm's restart count */
	int number;        /* counted from 0 over the directory: N of its metrics-N.jsonl */
	const char *nodes; /* in the record it was made from */
	int world_size;
	int64_t from; /* the step resumed from, -1 for a fresh start */
	int64_t last; /* the last step done, -1: not known */
	enum history_end end;
	const char *why, *notice; /* in the records; "" for none */
	double began, seconds; /* seconds it ran: to its end, else to its last step; NAN: not known */
	double lost;   /* of these, seconds of steps that the next attempt did again; NAN: not known */
	double waited; /* seconds from its end to the start of the next; NAN: not known, or none came */
};

/* What a metrics file says of the steps of one attempt. */
struct history_steps {
	int64_t last;    /* -1: none */
	double time;     /* of the last line, seconds since the epoch; 0: none */
	double *seconds; /* of step from + 1, from + 2, …; the caller's */
	size_t count;
	int64_t from; /* the step in front of seconds[0] */
};

/* Reads the lines of metrics-N.jsonl: a pure function. `steps->seconds` is malloc'ed; freed by
 * history_steps_clear. Lines that are torn or not understood are left out. -1 when out of memory.
 */
int history_steps_parse(const char *text, size_t size, struct history_steps *steps);
void history_steps_clear(struct history_steps *steps);

/* Seconds of the steps behind `step`. */
double history_steps_behind(const struct history_steps *steps, int64_t step);

/* Makes one row a start record; `rows` has room for `count`. steps[n] belongs to the n-th start,
 * `in_use` says whether the directory's owner lives, `now` is the time. Returns the number of rows:
 * a pure function. The texts are the records'. */
size_t history_rows(const struct attempts_record *records, size_t count,
	const struct history_steps *steps, bool in_use, double now, struct history_row *rows);

struct history_sum {
	size_t attempts, interruptions;
	double seconds, lost, waited; /* of those that are known */
	double mean_between;          /* seconds run, divided by the interruptions; NAN without any */
};

/* Adds up. An interruption is an attempt that neither finished nor still runs. */
struct history_sum history_sum(const struct history_row *rows, size_t count);

/* "finished", "preempted" and so on. */
const char *history_end_name(enum history_end end);

#endif
