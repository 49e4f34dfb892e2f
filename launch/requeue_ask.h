/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for the job's requeue from inside the step, for clusters without our plugin. */
#ifndef MUSTER_REQUEUE_ASK_H
#define MUSTER_REQUEUE_ASK_H

#include "common/ident.h"

/* For the end of a program with that status: runs libexec/muster-requeue for the job if it is 75 or
 * 69, and waits for it, at most 15 s. Errors are logged. Does nothing outside Slurm; nor if the
 * plugin is loaded, which asks by itself when the tasks end; nor for 69 where muster-run may begin
 * the step again. */
void requeue_ask(const struct ident *ident, int status);

#endif
