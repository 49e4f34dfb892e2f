/* SPDX-License-Identifier: Apache-2.0 */
/* Asks Slurm's controller about a job, by running muster-requeue: only that program is bound to a
 * release of Slurm, and libslurm may end the process that calls it. */
#ifndef MUSTER_JOB_QUERY_H
#define MUSTER_JOB_QUERY_H

#include <stdint.h>

#include "common/err.h"

/* Of a job's present attempt, in seconds since the epoch; 0: not known. */
struct job_times {
	double submitted; /* when it came into the queue, for the first time or again */
	double began;     /* when Slurm started it */
	double ends;      /* when Slurm will end it */
};

/* Nothing is known of job 0. May wait 5 s for the controller. */
struct job_times job_times(uint32_t job);

/* When Slurm will end the job, which may have changed; 0: not known. */
double job_ends(uint32_t job);

/* 1: the job runs or may still have processes (running, suspended, completing); 0: it does not, or
 * Slurm no longer knows it; -1 with err: Slurm can't be asked, here or now. May wait 5 s for the
 * controller. */
int job_is_running(uint32_t job, struct err *err);

#endif
