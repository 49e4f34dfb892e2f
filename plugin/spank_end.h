/* SPDX-License-Identifier: Apache-2.0 */
/* slurmstepd's part in telling srun which task was the first to fail. For steps of --muster alone;
 * nothing here fails a step. */
#ifndef MUSTER_SPANK_END_H
#define MUSTER_SPANK_END_H

#include <slurm/spank.h>
#include <stdbool.h>

/* Before the node's tasks are made, in slurmstepd itself: memory that they share with it. */
void spank_end_begin(spank_t spank);

/* In the task: its place in that memory. */
void spank_end_task_init(spank_t spank);

/* The rank of the task that has ended, as all components of the step count it. */
int spank_end_rank(spank_t spank);

/* Whether the task that has ended has said that its status is a result, and no failure. */
bool spank_end_is_result(spank_t spank);

/* Whether a task of this node has said that the job has come further. */
bool spank_end_progressed(spank_t spank);

/* Tells srun how a task has ended, if that can change what it says; `status` is not 0. Returns
 * whether srun knows of a failure on this node, and so names the first rank itself. */
bool spank_end_tell(spank_t spank, int status);

/* Tells srun that the job was neither cancelled nor taken away when the task ended. */
void spank_end_running(spank_t spank);

#endif
