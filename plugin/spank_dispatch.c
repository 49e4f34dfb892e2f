/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks that Slurm looks for, routed to the file of their context. Nothing else calls them.
 *
 * All return success, even after failures: another value may end a job or drain a node
 * (spank(8)). */
#include "plugin/spank_contexts.h"

SPANK_PLUGIN(muster, 1)

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
	switch (spank_context()) {
	case S_CTX_LOCAL: return spank_srun_init(spank, argc, argv);
	case S_CTX_ALLOCATOR: return spank_alloc_init(spank, argc, argv);
	case S_CTX_REMOTE:
		spank_job_extern_init(spank, argc, argv);
		return spank_stepd_init(spank, argc, argv);
	case S_CTX_SLURMD: return spank_slurmd_init(argc, argv);
	default: return 0;
	}
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
	switch (spank_context()) {
	case S_CTX_LOCAL: return spank_srun_post_opt(spank);
	case S_CTX_ALLOCATOR: return spank_alloc_post_opt(spank);
	case S_CTX_REMOTE: return spank_stepd_post_opt(spank);
	default: return 0;
	}
}

int slurm_spank_user_init(spank_t spank, int argc, char **argv)
{
	return spank_stepd_user_init(spank);
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
	return spank_stepd_task_init(spank);
}

int slurm_spank_task_exit(spank_t spank, int argc, char **argv)
{
	return spank_stepd_task_exit(spank);
}

int slurm_spank_exit(spank_t spank, int argc, char **argv)
{
	switch (spank_context()) {
	case S_CTX_LOCAL: return spank_srun_exit();
	case S_CTX_REMOTE: return spank_job_extern_exit(spank, argc, argv);
	default: return 0;
	}
}

int slurm_spank_job_prolog(spank_t spank, int argc, char **argv)
{
	return spank_job_prolog(spank, argc, argv);
}

int slurm_spank_job_epilog(spank_t spank, int argc, char **argv)
{
	return spank_job_epilog(spank, argc, argv);
}
