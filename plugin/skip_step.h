/* SPDX-License-Identifier: Apache-2.0 */
/* In srun: keeps what is left of an ended attempt from ending the next one's step.
 *
 * A requeued job has the same ID again, and Slurm counts its steps from 0 again. What is left of an
 * attempt on a node that Slurm had lost (srun, the child that looks after it, Slurm's PMIx server,
 * a slurmstepd) has the controller end its step by these IDs, minutes later perhaps. So every
 * second attempt begins with a step of one task that does nothing, and the training's step has
 * another ID than in the attempt before. From Slurm 26.05 on such a request names the attempt, too.
 */
#ifndef MUSTER_SKIP_STEP_H
#define MUSTER_SKIP_STEP_H

#include <stdbool.h>

#include "common/err.h"
#include "common/ident.h"

/* Whether the first step that this environment's script makes is to be such a step. */
bool skip_step_is_due(ident_env *env, void *arg);

/* Makes it with the program `srun` (an absolute path), and waits for its end. `environment` is that
 * of a job's script: what it says about resources and options is not passed on. -1 if it was not
 * made within `seconds`, or srun said something; then `err` has its first line. */
int skip_step_make(const char *srun, char *const *environment, double seconds, struct err *err);

#endif
