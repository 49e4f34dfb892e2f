/* SPDX-License-Identifier: Apache-2.0 */
/* What Slurm's controller says of a job. It is asked by muster-requeue, a process of its own: only
 * that one is bound to a release of Slurm, and libslurm may end the process that calls it. */
#ifndef MUSTER_JOB_QUERY_H
#define MUSTER_JOB_QUERY_H

#include <stdint.h>

#include "common/err.h"

/* When Slurm will end this job, in seconds since the epoch; 0 where that is not known, and for job
 * 0. May wait 5 s for the controller. */
double job_end_time(uint32_t job);

/* 1: the job runs or may yet run its processes (running, suspended, completing); 0: it does not, or
 * is not known any more; -1 with err: Slurm can't be asked, here or now. May wait 5 s for the
 * controller. */
int job_is_running(uint32_t job, struct err *err);

#endif
