/* SPDX-License-Identifier: Apache-2.0 */
/* All that a checkpoint directory tells of a run: its attempts, what each logged, the curve that
 * counts, and where the time went. */
#ifndef MUSTER_RUN_H
#define MUSTER_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "checkpoint/directory/attempts.h"
#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"
#include "runs/history.h"
#include "runs/run_table.h"

struct run {
	struct ckpt_dir dir;
	struct attempts_record *records;
	size_t record_count;
	struct run_table *tables; /* of each attempt; empty where it has no metrics */
	struct history_row *rows; /* of each attempt */
	off_t *read;              /* of each attempt, the bytes of its metrics that the tables hold */
	size_t unread;            /* attempts before this one have logged all that they ever will */
	size_t attempts;
	struct run_table curve;    /* the attempts merged */
	json_t *config, *numerics; /* of the newest checkpoint that has a manifest; NULL: none */
	int64_t saved;             /* the step of that checkpoint; -1: none */
	double saved_at;           /* seconds since the epoch */
};

/* Reads a run, also one that still trains. EXIT_USAGE when the directory has no record of an
 * attempt. In any case run_close is to follow. */
int run_read(const char *path, struct run *run, struct err *err);

/* Reads what has been added since. A directory that another run has taken the place of is read
 * anew. After an error the run has what could be read, and a later call may succeed. */
int run_update(struct run *run, struct err *err);

void run_close(struct run *run);

/* Where the seconds since the first attempt's start went. All but `wall` add up to it. */
struct run_time {
	double wall;     /* to the end of the last attempt, or to its last line; of one that runs, to
						now */
	double training; /* steps that count */
	double redone;   /* steps that a later attempt did again */
	double queued;   /* between attempts, in Slurm's queue */
	double waiting;  /* between attempts otherwise: Slurm ends the job and starts it, or all of the
						time where that in the queue is not known */
	double starting; /* from an attempt's start to its first step: the checkpoint is read */
	double saving;   /* in which training stood still for a save */
	double other;    /* validations, and from the last step to the end */
	double goodput;  /* training / wall; NAN where wall is 0 or not known */
};

struct run_time run_time(const struct run *run);

/* Of one attempt: from its start to its first step, and of training that stood still for its saves;
 * NAN where its lines don't tell. */
double run_starting(const struct run *run, size_t attempt);
double run_saving(const struct run *run, size_t attempt);

#endif
