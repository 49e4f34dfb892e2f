/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares an attempt: everything before its first step, as a ladder of stages. */
#ifndef MUSTER_PREPARE_H
#define MUSTER_PREPARE_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Collective. Fills in the run, whose settings must be there: identity and connections, checkpoint
 * directory, data, model, and the resumed state; and unless the run is finished, trace and savers.
 * After an error, what was made so far stays in the run for the caller to release. A stage that may
 * fail on one rank alone ends with a status exchange, so that all ranks leave together. Returns 0,
 * ERR_SHARED when all ranks have the error, or -1. */
int prepare(struct run *run, struct err *err);

#endif
