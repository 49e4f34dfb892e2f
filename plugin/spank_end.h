/* SPDX-License-Identifier: Apache-2.0 */
/* slurmstepd's part in telling srun which task failed first, and a muster-run that one has. Only
 * for steps with --muster; nothing here fails a step. */
#ifndef MUSTER_SPANK_END_H
#define MUSTER_SPANK_END_H

#include <slurm/spank.h>
#include <stdbool.h>

/* In slurmstepd, before the node's tasks are made: makes the memory that they share with it. */
void spank_end_begin(spank_t spank);

/* The same, as the user: tells a muster-run that the step begins. */
void spank_end_user_init(spank_t spank);

/* In the task: attaches it to its place in that memory. */
void spank_end_task_init(spank_t spank);

/* The rank of the task that has ended, numbered over all components of the step. */
int spank_end_rank(spank_t spank);

/* Whether the task that has ended declared its status a result, not a failure. */
bool spank_end_is_result(spank_t spank);

/* Whether a task of this node declared that the job has made progress. */
bool spank_end_progressed(spank_t spank);

/* Whether a task of this node declared that a cloud is about to take the node away. */
bool spank_end_leaving(spank_t spank);

/* How often the step may still be begun anew by the muster-run that has started it; 0: there is
 * none. */
int spank_end_restarts_left(spank_t spank);

/* Tells srun and muster-run how a task ended, if that can change srun's line; `status` is not 0.
 * Returns whether srun knows of a failure on this node, and so will name the first rank itself. */
bool spank_end_tell(spank_t spank, int status);

/* Tells srun that the job was neither cancelled nor preempted when the task ended. */
void spank_end_running(spank_t spank);

#endif
