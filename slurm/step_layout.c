/* SPDX-License-Identifier: Apache-2.0 */
/* SLURM_STEP_NODELIST is sorted by name. It is not in rank order if the user gave an order
 * (--distribution=arbitrary) or the step has several components, so the controller is asked. */
#include "slurm/step_layout.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdbool.h>

#include "common/hostlist.h"

/* The node of task 0 in a layout, if the layout has it and the node is in the step: another step of
 * the leader's job may have the same number. */
static bool first_node(const slurm_step_layout_t *layout, const char *nodes, char *out, size_t size)
{
	for (uint32_t node = 0; node < layout->node_cnt; node++)
		for (uint32_t task = 0; task < layout->tasks[node]; task++)
			if (layout->tids[node][task] == 0)
				return hostlist_nth(layout->node_list, node, out, size) == 0
					&& hostlist_find(nodes, out) >= 0;
	return false;
}

/* 1: found; 0: the job has no such step, or not on our nodes; -1: the controller couldn't be
 * asked. */
static int ask(uint32_t job, uint32_t step, uint32_t component, const char *nodes, char *out,
	size_t size)
{
	slurm_step_id_t id = { .job_id = job, .step_id = step, .step_het_comp = component };
	slurm_step_layout_t *layout = slurm_job_step_layout_get(&id);
	if (!layout)
		return errno == ESLURM_INVALID_JOB_ID ? 0 : -1;
	bool found = first_node(layout, nodes, out, size);
	slurm_job_step_layout_free(layout);
	return found;
}

int step_layout_first_node(const struct step_layout_step *step, char *out, size_t size,
	struct err *err)
{
	int found = 0;
	/* Components of one job are numbered; components that are jobs are not. All of them exist
	 * before the first task starts. One whose tasks have all ended is skipped, but then no rank
	 * meets there any more. */
	for (uint32_t job = step->leader; found == 0 && job <= step->job; job++) {
		found = ask(job, step->step, 0, step->nodes, out, size);
		if (found == 0)
			found = ask(job, step->step, NO_VAL, step->nodes, out, size);
	}
	if (found > 0)
		return 0;
	return err_fail(err, found < 0 ? EXIT_LOST : EXIT_FAULT,
		"ranks: couldn't learn from Slurm's controller on which node rank 0 is: %s: set "
		"MASTER_ADDR to it",
		found < 0 ? slurm_strerror(errno) : "it knows no such step");
}
