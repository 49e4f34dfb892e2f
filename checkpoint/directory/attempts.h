/* SPDX-License-Identifier: Apache-2.0 */
/* attempts.jsonl: the record of every attempt of a run, for people and for the breaker of crash
 * loops (doc/checkpoint-format.md, section 7). */
#ifndef MUSTER_ATTEMPTS_H
#define MUSTER_ATTEMPTS_H

#include <stddef.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "common/err.h"

#define ATTEMPTS_NAME "attempts.jsonl"
#define ATTEMPTS_CRASH_LOOP 3 /* this many attempts in a row without progress end the job */

enum attempts_event { ATTEMPTS_START, ATTEMPTS_NOTICE, ATTEMPTS_END };

struct attempts_record {
	enum attempts_event event;
	double time;          /* seconds since the epoch; attempts_append takes 0 for now */
	char cluster[64];     /* "" outside Slurm */
	uint32_t job;         /* 0 outside Slurm */
	int attempt, restart; /* as in struct ident */
	int64_t step;   /* start: the step resumed from, -1 for a fresh start; notice: the current step;
					   end: the last step done */
	int world_size; /* start */
	/* start: when this attempt came into Slurm's queue, when Slurm started the job, and when it
	 * ends it: seconds since the epoch; 0: not known */
	double submitted, started, limit;
	int64_t steps;       /* start: of the whole run; 0: not known */
	char nodes[1024];    /* start: node list in Slurm's notation */
	char left_out[1024]; /* start: nodes that muster-run has left out, with commas between */
	char machine[128];   /* start: rank 0's, in words */
	char version[32];    /* start: Muster's */
	char why[256]; /* notice: which one ("SIGTERM"); end: the reason ("finished", "preempted", …) */
	int status;    /* end: the exit status */
};

/* Appends one line and makes it durable. 0, or -1 with err set. */
int attempts_append(const struct ckpt_dir *dir, const struct attempts_record *record,
	struct err *err);

/* Reads all records; *records is malloc'ed and the caller's. A line that is torn or can't be
 * understood is skipped. Without a file there are no records. */
int attempts_read(const struct ckpt_dir *dir, struct attempts_record **records, size_t *count,
	struct err *err);

/* The same from the file's bytes, as a pure function. */
int attempts_parse(const char *text, size_t size, struct attempts_record **records, size_t *count,
	struct err *err);

/* The attempt that asks. */
struct attempts_asker {
	const char *cluster;
	uint32_t job;
	int attempt, restart;
};

/* How many attempts of this job in a row, counted back from the one before the asker's, made no
 * progress: they brought no step newer than the one they resumed from, did not end with status 0,
 * and were not cut short by a notice. A notice cut an attempt short if it came in the first half of
 * the time up to the attempt's limit, and if no end follows it or one with status 75. Several
 * starts in one attempt, by a script or from a shell, count as one, but each restart by muster-run
 * counts. `newest` is the newest durable
 * step now, -1 for none. From ATTEMPTS_CRASH_LOOP on, the job should end. Always 0 for job 0, whose
 * attempts people start by hand. */
int attempts_without_progress(const struct attempts_record *records, size_t count,
	const struct attempts_asker *asker, int64_t newest);

#endif
