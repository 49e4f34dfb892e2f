/* SPDX-License-Identifier: Apache-2.0 */
/* For the job's prolog and epilog: how this site has Slurm run them. */
#ifndef MUSTER_SPANK_SLURMD_H
#define MUSTER_SPANK_SLURMD_H

#include "slurm/hooks.h"

/* As slurm.conf says, or as slurmd has left word in RUN. */
void spank_slurmd_hooks(const char *run, struct hooks *hooks);

#endif
