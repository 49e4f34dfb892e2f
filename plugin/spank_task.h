/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about slurmstepd's step, and programs that it runs as the job's user. */
#ifndef MUSTER_SPANK_TASK_H
#define MUSTER_SPANK_TASK_H

#include <slurm/spank.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* 0 if Slurm does not tell. */
uint32_t spank_task_item(spank_t spank, enum spank_item name);

/* From srun to slurmstepd: the distances of --overlap and --pty from the end of srun's command
 * line, in words, or 0 if not given. */
#define SPANK_TASK_ASIDE "SLURM_MUSTER_ASIDE"

/* Whether srun started the step. The batch script, the extern and the interactive step have no
 * ranks. */
bool spank_task_is_step(spank_t spank);

/* Whether the step was started with srun --overlap or --pty, as steps beside the training are; not
 * those of muster-run. */
void spank_task_options(spank_t spank, bool *overlap, bool *pty);

/* A variable of the task; NULL if it is unset. The last 16 results stay valid. `arg` is the
 * spank_t. */
const char *spank_task_env(const char *name, void *arg);

/* How often the job was restarted. */
uint32_t spank_task_attempt(spank_t spank);

/* Runs a program as the job's user, as run_as_user does, with an environment that has nothing of
 * the job's. */
int spank_task_run(spank_t spank, char **argv, double seconds, char *output, size_t size,
	struct err *err);

#endif
