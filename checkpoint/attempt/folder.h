/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory as rank 0 holds it during one attempt: ownership with its heartbeat, the
 * record of attempts and notices, and the newest checkpoint. */
#ifndef MUSTER_FOLDER_H
#define MUSTER_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include "checkpoint/directory/ckpt_dir.h"
#include "checkpoint/directory/owner.h"
#include "checkpoint/load/ckpt.h"
#include "common/err.h"
#include "common/ident.h"

struct folder;

/* What the folder is told of this job and asks about others. */
struct folder_job {
	const struct ident *ident;
	double ends; /* when Slurm will end it, seconds since the epoch; 0: not known */
	int (*is_running)(uint32_t job,
		struct err *err); /* 1, 0, or -1: not known; NULL: Slurm is not asked */
};

/* Opens and claims `path`, clears what other attempts left unfinished, ends a crash loop
 * (EXIT_FAULT, with the reason), opens the newest checkpoint and appends this attempt's start. With
 * `fresh` a directory that holds another job's run is refused. `timeout` bounds the retries of an
 * I/O error. */
struct folder *folder_open(const char *path, const struct folder_job *job, bool fresh,
	double timeout, struct err *err);

const struct ckpt_dir *folder_dir(const struct folder *folder);
const char *folder_token(const struct folder *folder);

/* Number of this attempt among all of this directory, from 0; it names the metrics file. */
int folder_attempt(const struct folder *folder);

/* The newest checkpoint, NULL when there is none; the folder's until folder_drop_checkpoint. Its
 * manifest and headers are valid; what its files hold is compared when it is read. */
struct ckpt *folder_checkpoint(struct folder *folder);

/* It was found to be damaged: sets it aside, and the one before takes its place. Returns 1, 0 when
 * there is none before it, -1 on error. */
int folder_refuse_checkpoint(struct folder *folder, const char *why, struct err *err);

void folder_drop_checkpoint(struct folder *folder);

/* Mean seconds between interruptions of this run up to now, from its record
 * (checkpoint/directory/save_schedule.h). */
double folder_mean_time_between(const struct folder *folder);

/* Tells the last step that was done. */
void folder_progress(struct folder *folder, uint64_t step);

/* Records a notice, durably, before the save that follows it. One that came to this rank is
 * recorded at once, by the folder's thread, whatever the caller stands in; then nothing is left to
 * do here. */
int folder_notice(struct folder *folder, int signal, struct err *err);

/* Records how the attempt ended; step 0: before it had a state. */
int folder_end(struct folder *folder, uint64_t step, const char *why, int status, struct err *err);

/* Whether the heartbeat found another owner. */
bool folder_lost(struct folder *folder);

/* Ends the heartbeat; gives the directory back when `orderly`. NULL is allowed. */
void folder_close(struct folder *folder, bool orderly);

#endif
