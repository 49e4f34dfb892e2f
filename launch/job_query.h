/* SPDX-License-Identifier: Apache-2.0 */
/* Asks Slurm's controller about a job, by running muster-requeue: only that program is bound to a
 * release of Slurm, and libslurm may end the process that calls it. */
#ifndef MUSTER_JOB_QUERY_H
#define MUSTER_JOB_QUERY_H

#include <stdint.h>

#include "common/err.h"

/* When Slurm will end this job, in seconds since the epoch; 0 if unknown, and for job 0. May wait
 * 5 s for the controller. */
double job_end_time(uint32_t job);

/* 1: the job runs or may still have processes (running, suspended, completing); 0: it does not, or
 * Slurm no longer knows it; -1 with err: Slurm can't be asked, here or now. May wait 5 s for the
 * controller. */
int job_is_running(uint32_t job, struct err *err);

#endif
