/* SPDX-License-Identifier: Apache-2.0 */
/* Back from a checkpoint: its record is held against this run's parameters, then the tensor table is read backwards. */
#ifndef MUSTER_RESUME_H
#define MUSTER_RESUME_H

#include "common/err.h"
#include "trainer/run.h"

/* Rank 0's part, once all of the run stands: the newest checkpoint (run->folder) or the initial weights go into
 * run->state, and the records that later checkpoints carry are made. A difference of identity or an unnamed one of the
 * schedule: EXIT_USAGE; a checkpoint of another shape: EXIT_DATA. */
int resume_apply(struct run *run, struct err *err);

#endif
