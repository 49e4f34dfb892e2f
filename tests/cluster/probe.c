/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest SPANK plugin whose presence a task can see: its first argument is the task's PROBE. */
#include <slurm/spank.h>

SPANK_PLUGIN(probe, 1);

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	return spank_setenv(spank, "PROBE", ac > 0 ? av[0] : "none", 1) == ESPANK_SUCCESS ? 0 : -1;
}
