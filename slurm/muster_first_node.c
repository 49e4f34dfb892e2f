/* SPDX-License-Identifier: Apache-2.0 */
/* muster-first-node: asks Slurm's controller where rank 0 of a step runs. The plugin runs it as the
 * job's user. */
#include <slurm/slurm.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "common/descriptors.h"
#include "common/err.h"
#include "common/number.h"
#include "slurm/step_layout.h"

static int read_id(const char *text, uint32_t *id)
{
	int64_t value;
	if (!number_whole(text, 0, UINT32_MAX, &value)) {
		printf("muster-first-node: %s is not a number of Slurm's\n", text);
		return -1;
	}
	*id = (uint32_t)value;
	return 0;
}

int main(int argc, char **argv)
{
	struct step_layout_step step;
	struct err err = { 0 };
	char node[256];
	descriptors_raise();
	if (argc != 5) {
		printf("usage: muster-first-node LEADER JOB STEP NODES\n");
		return EXIT_USAGE;
	}
	if (read_id(argv[1], &step.leader) < 0 || read_id(argv[2], &step.job) < 0
		|| read_id(argv[3], &step.step) < 0)
		return EXIT_USAGE;
	step.nodes = argv[4];
	prctl(PR_SET_DUMPABLE, 0); /* as in muster-requeue */
	slurm_init(NULL);
	if (step_layout_first_node(&step, node, sizeof node, &err) < 0) {
		printf("%s\n", err.text);
		return err.status;
	}
	printf("node %s\n", node);
	return 0;
}
