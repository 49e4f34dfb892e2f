/* SPDX-License-Identifier: Apache-2.0 */
/* What an attempt that Slurm takes for ended has left on this node, and would end the job's next
 * one with: its slurmstepds, and its script.
 *
 * A slurmstepd that remains when slurmd takes its step for ended, before Slurm 25.05.4: its PMIx
 * server still asks a lost node, for half a minute (doc/slurm-releases.md). When it ends at last it
 * reports the end of its step by the step's IDs. A requeued job has the same IDs again, and Slurm
 * ends the step that has them by then: that of the next attempt. */
#ifndef MUSTER_LEFT_STEPD_H
#define MUSTER_LEFT_STEPD_H

#include <stdint.h>
#include <sys/types.h>

/* For the job's epilog, which slurmd runs by the program slurmstepd: kills the job's others that do
 * not end by themselves within `seconds`, unless they still have a child. Returns the number of
 * those killed. */
int left_stepd_end(uint32_t job, double seconds);

/* For an attempt that Slurm has ended elsewhere while this node was lost: stops all processes of
 * the job's script here, which Slurm kills when it finds them, and kills each srun. An srun that
 * lives on hears of the end of its tasks and has the controller cancel its step, by the IDs that
 * the next attempt's step has by then; so does a child of srun's when srun is killed, unless it is
 * stopped before. A script that lives on ends, and Slurm may take that for the end of the job.
 * `step`: the slurmstepd of one of the attempt's steps. A script whose slurmstepd has begun after
 * it is a later attempt's, and left alone. Returns the number of those processes. */
int left_script_stop(uint32_t job, pid_t step);

#endif
