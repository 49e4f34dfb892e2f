/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of checks/check.h that need no other node, made before a step's tasks begin. */
#ifndef MUSTER_PREFLIGHT_H
#define MUSTER_PREFLIGHT_H

#include <stdbool.h>

#include "common/ident.h"

enum preflight_mode { PREFLIGHT_MODE_OFF, PREFLIGHT_MODE_WARN, PREFLIGHT_MODE_ON };

/* "on", "warn" or "off"; -1 for anything else. */
int preflight_mode_of(const char *word);

/* Memory that a node's tasks share, made before they are forked. NULL if it can't be made: then no
 * checks are made. */
struct preflight;
struct preflight *preflight_share(int tasks);

/* Receives one line. */
typedef void preflight_say(void *arg, const char *line);

/* In each task, once its environment is complete. The last of the node's tasks judges the facts of
 * all and reports the findings. The others wait for it only if the step may have to be stopped.
 * Warnings are reported on the step's first node only. `launches`: the task starts ranks itself.
 * Returns false if the task must end with EXIT_USAGE. `arg` goes to both functions. */
bool preflight_task(struct preflight *shared, enum preflight_mode mode, bool launches,
	ident_env *env, preflight_say *say, void *arg);

/* In srun: the MPI type by which ranks will meet, "pmix", or "pmi2" if this Slurm has no PMIx. NULL
 * if it has neither, which is reported. */
const char *preflight_mpi(preflight_say *say, void *arg);

#endif
