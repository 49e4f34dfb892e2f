/* SPDX-License-Identifier: Apache-2.0 */
/* Finds where a step's first task runs, according to Slurm's controller. */
#ifndef MUSTER_STEP_LAYOUT_H
#define MUSTER_STEP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* A step and its nodes. A heterogeneous step is one step of several jobs, the components, whose IDs
 * follow each other from the leader's. Rank 0 is in the first component that has the step. */
struct step_layout_step {
	uint32_t leader, job, step;
	const char *nodes; /* all of them, as in SLURM_STEP_NODELIST */
};

/* Writes the name of rank 0's node to `out`. Asks the controller once or a few times. Status
 * EXIT_LOST if it can't be asked. */
int step_layout_first_node(const struct step_layout_step *step, char *out, size_t size,
	struct err *err);

#endif
