/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of checks/check.h that need no other node, made before a step's tasks begin. */
#ifndef MUSTER_PREFLIGHT_H
#define MUSTER_PREFLIGHT_H

#include <stdbool.h>

#include "common/ident.h"

enum preflight_mode { PREFLIGHT_MODE_OFF, PREFLIGHT_MODE_WARN, PREFLIGHT_MODE_ON };

/* "on", "warn" or "off"; -1 for anything else. */
int preflight_mode_of(const char *word);

/* Memory that the tasks of a node share; made before they are forked. NULL when there is none: then
 * no checks are made. */
struct preflight;
struct preflight *preflight_share(int tasks);

/* Receives one line. */
typedef void preflight_say(void *arg, const char *line);

/* In each task, once its environment is complete: the last of the node's tasks judges what all of
 * them see, and says it. The others wait for it only where it may be that the step must not begin.
 * What only warns is said on the step's first node. `launches`: the task starts ranks of its own.
 * Returns false when the task is to end with EXIT_USAGE. `arg` goes to both functions. */
bool preflight_task(struct preflight *shared, enum preflight_mode mode, bool launches,
	ident_env *env, preflight_say *say, void *arg);

/* In srun: the type of MPI by which ranks are to meet, "pmix" or, where this Slurm has none,
 * "pmi2". NULL where it has neither, which is said. */
const char *preflight_mpi(preflight_say *say, void *arg);

#endif
