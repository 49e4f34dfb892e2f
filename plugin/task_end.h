/* SPDX-License-Identifier: Apache-2.0 */
/* What a task's end means for its job, from the wait status alone (doc/exit-status.md). */
#ifndef MUSTER_TASK_END_H
#define MUSTER_TASK_END_H

#include <stdbool.h>
#include <stddef.h>

enum task_end {
	TASK_FINISHED, /* status 0 */
	TASK_FINAL,    /* a fault that would recur: the job ends */
	TASK_REQUEUE,  /* the job goes back into the queue */
	TASK_KILLED,   /* the same, by a signal that Slurm itself sends after another rank has failed */
};

/* A shell around the program turns death by signal N into status 128 + N, which counts as the
 * same. */
enum task_end task_end_judge(int wait_status);

/* Whether an end that brings the job back could recur for ever and so must be counted: all except
 * status 75. */
bool task_end_is_counted(int wait_status);

/* Who caused an end. */
enum task_blame {
	TASK_BLAME_OWN,    /* the task */
	TASK_BLAME_LOST,   /* most likely a peer: status 69 */
	TASK_BLAME_KILLED, /* SIGKILL: the user, a lack of memory, or Slurm after another failure */
	TASK_BLAME_TOLD,   /* nobody: told to end, as by SIGTERM, or saw a notice (status 75) */
};

/* For all statuses except TASK_FINISHED's. */
enum task_blame task_end_blame(int wait_status);

/* "exited with status 1", "was killed by signal 9 (Killed)" … into `out`; returns it. */
char *task_end_describe(int wait_status, char *out, size_t size);

#endif
