/* SPDX-License-Identifier: Apache-2.0 */
/* Whether Slurm says that a job runs: asked before a checkpoint directory is taken from another job. */
#ifndef MUSTER_JOB_STATE_H
#define MUSTER_JOB_STATE_H

#include <stdint.h>

#include "common/err.h"

/* 1: the job runs or may yet run its processes (running, suspended, completing); 0: it does not, or is not known any
 * more; -1 with err: Slurm can't be asked, here or now. Defined in plugin/requeue.c, or launch/job_state_none.c in a
 * build without Slurm. */
int job_is_running(uint32_t job, struct err *err);

#endif
