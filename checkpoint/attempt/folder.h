/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint directory as rank 0 uses it during one attempt: ownership with its heartbeat, the
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

/* What the folder is told about this job and asks about others. */
struct folder_job {
	const struct ident *ident;
	/* When this attempt of it came into Slurm's queue, when Slurm started it, and when Slurm will
	 * end it: seconds since the epoch; 0: not known. */
	double submitted, started, ends;
	int (*is_running)(uint32_t job,
		struct err *err); /* 1: it runs, 0: it ended, -1: unknown; NULL: don't ask Slurm */
	double (*ends_now)(uint32_t job); /* asks once more when Slurm will end it; NULL: don't ask */
	int64_t steps;                    /* of the whole run; 0: not known */
};

/* Opens and claims `path`, commits or removes what other attempts left unfinished, ends a crash
 * loop (EXIT_FAULT, with the reason), opens the newest checkpoint and appends this attempt's start.
 * With `fresh`, a directory that holds another job's run is refused (EXIT_USAGE). `timeout` limits
 * the seconds for which an I/O error is retried. NULL with err set on an error; else closed by
 * folder_close. */
struct folder *folder_open(const char *path, const struct folder_job *job, bool fresh,
	double timeout, struct err *err);

const struct ckpt_dir *folder_dir(const struct folder *folder);
const char *folder_token(const struct folder *folder);

/* Number of this attempt among all attempts in this directory, from 0; used in the name of the
 * metrics file. */
int folder_attempt(const struct folder *folder);

/* The newest checkpoint, or NULL when there is none; it belongs to the folder and is valid until
 * folder_drop_checkpoint. Its manifest and headers are valid; the data is verified when it is
 * read. */
struct ckpt *folder_checkpoint(struct folder *folder);

/* Sets the checkpoint aside because it is damaged, and opens the one before it. Returns 1, 0 when
 * there is none before it, -1 on error. */
int folder_refuse_checkpoint(struct folder *folder, const char *why, struct err *err);

void folder_drop_checkpoint(struct folder *folder);

/* Mean seconds between interruptions of this run until now, from its record of attempts
 * (checkpoint/directory/save_schedule.h). */
double folder_mean_time_between(const struct folder *folder);

/* Sets the last step done, which a notice is recorded with. */
void folder_progress(struct folder *folder, uint64_t step);

/* Tells that a save took so long until it was durable. From then on the folder gives notice
 * (NOTICE_TIME_LIMIT) when what is left of the job's time is close to twice the longest of the last
 * four, and says so. */
void folder_saved(struct folder *folder, double seconds);

/* Records a notice durably; call it before the save that follows the notice. If the notice came to
 * this rank, the folder's thread records it at once and this call only waits for that. */
int folder_notice(struct folder *folder, int signal, struct err *err);

/* Records how the attempt ended. `step` 0: before it had a state. */
int folder_end(struct folder *folder, uint64_t step, const char *why, int status, struct err *err);

/* Whether the heartbeat found that the directory has another owner. */
bool folder_lost(struct folder *folder);

/* Ends the heartbeat; with `orderly`, gives up ownership of the directory. NULL is allowed. */
void folder_close(struct folder *folder, bool orderly);

#endif
