/* SPDX-License-Identifier: Apache-2.0 */
/* What became of each attempt of a run, from attempts.jsonl and the metrics files. */
#ifndef MUSTER_HISTORY_H
#define MUSTER_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/attempts.h"
#include "runs/run_table.h"

enum history_end {
	HISTORY_FINISHED, /* status 0 */
	HISTORY_STOPPED,  /* after a notice, with a checkpoint: status 75 */
	HISTORY_LOST,     /* a peer or the disk was lost: status 69 */
	HISTORY_FAILED,   /* any other status */
	HISTORY_KILLED,   /* no record of its end */
	HISTORY_RUNNING, /* no record of its end, but it is the last attempt and its directory is in use
					  */
};

/* One attempt. */
struct history_row {
	uint32_t job;
	int attempt; /* Slurm's restart count */
	int number;  /* index among all attempts in the directory, from 0: N of its metrics-N.jsonl */
	const char *nodes, *machine, *version; /* point into the attempt's record; "": not known */
	int world_size;
	int64_t steps; /* of the whole run; 0: not known */
	int64_t from;  /* the step resumed from; -1: a fresh start */
	int64_t last;  /* the last step done; -1: not known */
	enum history_end end;
	int status;               /* with which it ended; -1: no record of that */
	const char *why, *notice; /* point into the records; "" for none */
	double queued;            /* seconds it waited in Slurm's queue before it; NAN: not known */
	double noticed;        /* when the notice came, seconds since the epoch; NAN: there was none */
	double began, seconds; /* seconds it ran, to its end or else to its last step; NAN: not known */
	double lost;   /* seconds of its steps that the next attempt computed again; NAN: not known */
	double waited; /* seconds from its end to the start of the next; NAN: not known, or there is no
					  next */
};

/* Makes one row per start record, as a pure function; `rows` has room for `count`. tables[n]
 * belongs to the n-th start, `in_use` says whether the directory's owner is alive, `now` is the
 * time. Returns the number of rows. Their texts point into the records. */
size_t history_rows(const struct attempts_record *records, size_t count,
	const struct run_table *tables, bool in_use, double now, struct history_row *rows);

struct history_sum {
	size_t attempts, interruptions;
	double seconds, lost, waited; /* sums of the known ones */
	double mean_between; /* seconds run, divided by the interruptions; NAN when there were none */
};

/* An interruption is an attempt that neither finished nor still runs. */
struct history_sum history_sum(const struct history_row *rows, size_t count);

/* "finished", "stopped" and so on. */
const char *history_end_name(enum history_end end);

#endif
