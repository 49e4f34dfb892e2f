/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the plugin, one file for each of Slurm's contexts; plugin/spank_dispatch.c routes
 * Slurm's callbacks to them. Each function returns 0 or -1. */
#ifndef MUSTER_SPANK_CONTEXTS_H
#define MUSTER_SPANK_CONTEXTS_H

#include <slurm/spank.h>

/* spank_srun.c: in srun */
int spank_srun_init(spank_t spank, int argc, char **argv);
int spank_srun_post_opt(spank_t spank);
int spank_srun_exit(void);

/* spank_alloc.c: in sbatch and salloc */
int spank_alloc_init(spank_t spank, int argc, char **argv);
int spank_alloc_post_opt(spank_t spank);

/* spank_stepd.c: in slurmstepd */
int spank_stepd_init(spank_t spank, int argc, char **argv);
int spank_stepd_post_opt(spank_t spank);
int spank_stepd_user_init(spank_t spank);
int spank_stepd_task_init(spank_t spank);
int spank_stepd_task_exit(spank_t spank);

/* spank_slurmd.c: in slurmd, when it starts */
int spank_slurmd_init(int argc, char **argv);

/* spank_job.c: in slurmd's job prolog and epilog; always return 0, since a failure there drains the
 * node */
int spank_job_prolog(spank_t spank, int argc, char **argv);
int spank_job_epilog(spank_t spank, int argc, char **argv);

/* The same in slurmstepd: if Slurm leaves plugins out of both, the job's extern step takes their
 * place */
int spank_job_extern_init(spank_t spank, int argc, char **argv);
int spank_job_extern_exit(spank_t spank, int argc, char **argv);

#endif
