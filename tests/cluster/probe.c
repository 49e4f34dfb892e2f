/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest SPANK plugin whose presence a task can see: its first argument is the task's PROBE.
 * With OTHER_RELEASE it is built as for a release of Slurm that is not this one. */
#include <slurm/spank.h>

#ifdef OTHER_RELEASE
#include <slurm/slurm.h>
enum { THIS_RELEASE = SLURM_VERSION_NUMBER };
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER (THIS_RELEASE ^ 0x100) /* bits 8 to 15: the minor */
#endif

SPANK_PLUGIN(probe, 1);

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
	return spank_setenv(spank, "PROBE", ac > 0 ? av[0] : "none", 1) == ESPANK_SUCCESS ? 0 : -1;
}
