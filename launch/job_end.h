/* SPDX-License-Identifier: Apache-2.0 */
/* When Slurm will end this job: for the record of its attempts. */
#ifndef MUSTER_JOB_END_H
#define MUSTER_JOB_END_H

#include <stdint.h>

/* Seconds since the epoch; 0 where that is not known, and for job 0. May wait 5 s for the controller. */
double job_end_time(uint32_t job);

#endif
