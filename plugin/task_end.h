/* SPDX-License-Identifier: Apache-2.0 */
/* What the end of a task means for its job, from the wait status alone (doc/exit-status.md). */
#ifndef MUSTER_TASK_END_H
#define MUSTER_TASK_END_H

#include <stdbool.h>
#include <stddef.h>

enum task_end {
	TASK_FINISHED, /* status 0 */
	TASK_FINAL,    /* a fault that would come again: the job ends */
	TASK_REQUEUE,  /* the job goes back to the queue */
	TASK_KILLED,   /* the same, by a signal that Slurm itself sends when another rank has failed */
};

/* A shell in front of the program turns death by signal N into status 128 + N: it counts as the
 * same. */
enum task_end task_end_judge(int wait_status);

/* Whether an end that brings the job back is one that would come back for ever, if nobody counted:
 * all but status 75. */
bool task_end_is_counted(int wait_status);

/* Whose doing an end is. */
enum task_blame {
	TASK_BLAME_OWN,    /* the task's */
	TASK_BLAME_LOST,   /* most likely a peer's: status 69 */
	TASK_BLAME_KILLED, /* SIGKILL: by a user or for its memory, or by Slurm since another task has
						  failed */
	TASK_BLAME_TOLD, /* nobody's: it was told to end, by SIGTERM for instance, or has seen a notice
						(status 75) */
};

/* For statuses other than that of TASK_FINISHED. */
enum task_blame task_end_blame(int wait_status);

/* "exited with status 1", "was killed by signal 9 (Killed)" … into `out`; returns it. */
char *task_end_describe(int wait_status, char *out, size_t size);

#endif
