/* SPDX-License-Identifier: Apache-2.0 */
/* For the job's prolog and epilog: how this site's Slurm runs them. */
#ifndef MUSTER_SPANK_SLURMD_H
#define MUSTER_SPANK_SLURMD_H

#include "slurm/hooks.h"

/* From slurm.conf, or from what slurmd has stored in RUN. */
void spank_slurmd_hooks(const char *run, struct hooks *hooks);

#endif
