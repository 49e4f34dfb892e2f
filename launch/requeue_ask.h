/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for the job's requeue from inside the step, for clusters without our plugin. */
#ifndef MUSTER_REQUEUE_ASK_H
#define MUSTER_REQUEUE_ASK_H

#include "common/ident.h"

/* Runs libexec/muster-requeue for the job and waits for it, at most 15 s. Errors are logged. Does
 * nothing outside Slurm, nor if the plugin is loaded, which asks by itself when the tasks end. */
void requeue_ask(const struct ident *ident);

#endif
