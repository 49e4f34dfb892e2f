/* SPDX-License-Identifier: Apache-2.0 */
/* A slurmstepd that remains when slurmd takes its step for ended, before Slurm 25.05.4: its PMIx
 * server still asks a lost node, for half a minute (doc/slurm-releases.md). When it ends at last it
 * reports the end of its step by the step's IDs. A requeued job has the same IDs again, and Slurm
 * ends the step that has them by then: that of the next attempt. */
#ifndef MUSTER_LEFT_STEPD_H
#define MUSTER_LEFT_STEPD_H

#include <stdint.h>

/* For the job's epilog, which slurmd runs by the program slurmstepd: kills the job's others that do
 * not end by themselves within `seconds`, unless they still have a child. Returns the number of
 * those killed. */
int left_stepd_end(uint32_t job, double seconds);

#endif
