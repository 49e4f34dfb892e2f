/* SPDX-License-Identifier: Apache-2.0 */
/* What slurmstepd knows of its step, and programs that it runs for the job's user. */
#ifndef MUSTER_SPANK_TASK_H
#define MUSTER_SPANK_TASK_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* 0 where Slurm does not say. */
uint32_t spank_task_item(spank_t spank, enum spank_item name);

/* srun's word to slurmstepd: how many words from the end of its command line --overlap and --pty
 * stand, 0 for nowhere. */
#define SPANK_TASK_ASIDE "SLURM_MUSTER_ASIDE"

/* Whether srun started the step; the batch script, the extern and the interactive step have no
 * ranks. */
bool spank_task_is_step(spank_t spank);

/* Whether the step was started with srun --overlap or --pty, which steps beside the training are.
 */
void spank_task_options(spank_t spank, bool *overlap, bool *pty);

/* A variable of the task; NULL when it is unset. Each call has its own buffer among the last 16.
 * `arg` is the spank_t. */
const char *spank_task_env(const char *name, void *arg);

/* How often the job was restarted. */
uint32_t spank_task_attempt(spank_t spank);

/* Runs a helper as the job's user, as run_as_user does, with an environment that has nothing of the
 * job's. */
int spank_task_run(spank_t spank, char **argv, double seconds, char *output, size_t size,
	struct err *err);

#endif
