/* SPDX-License-Identifier: Apache-2.0 */
/* The srun of a step, with all that the environment of a job's script says of nodes and tasks
 * replaced: that is as old as the job. */
#ifndef MUSTER_COMMAND_H
#define MUSTER_COMMAND_H

#include <stdbool.h>

#include "common/err.h"

struct command_step {
	const char *nodes; /* with commas between */
	int node_count, tasks;
	bool again; /* what is left of the step before may still hold the resources */
};

/* Whether the user's command is srun, without options that choose nodes or tasks; else err, of
 * status EXIT_USAGE, has the remedy. argv ends with NULL. */
int command_check(char *const *argv, struct err *err);

/* The command with our options after its first word. Its words are the user's and those of `text`,
 * which is malloc'ed, as is the array. NULL when out of memory. */
char **command_make(char *const *argv, const struct command_step *step, char **text);

#endif
