/* SPDX-License-Identifier: Apache-2.0 */
/* Where a step's first task runs, as Slurm's controller knows it. */
#ifndef MUSTER_STEP_LAYOUT_H
#define MUSTER_STEP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

/* A step and the nodes it runs on. A heterogeneous step is one step of several jobs, the
 * components, whose ids follow each other from the leader's; the first of those that has the step
 * has its rank 0. */
struct step_layout_step {
	uint32_t leader, job, step;
	const char *nodes; /* all of them, as SLURM_STEP_NODELIST has them */
};

/* The name of the node of rank 0. Asks the controller, once or a few times. Status EXIT_LOST when
 * it can't be asked. */
int step_layout_first_node(const struct step_layout_step *step, char *out, size_t size,
	struct err *err);

#endif
