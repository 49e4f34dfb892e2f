/* SPDX-License-Identifier: Apache-2.0 */
/* Back from a checkpoint: its record is held against this run's parameters, then the tensor table
 * is read backwards. */
#ifndef MUSTER_RESUME_H
#define MUSTER_RESUME_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Rank 0's part, once all of the run stands: the newest checkpoint (run->folder) or the initial
 * weights go into run->state, and the records that later checkpoints carry are made. A difference
 * of identity or an unnamed one of the schedule: EXIT_USAGE; a checkpoint of another shape:
 * EXIT_DATA. Of an imported model (step 0, "imported" in its configuration) only the weights count,
 * in fp32, fp16 or bf16, and the identity that its record names. */
int resume_apply(struct run *run, struct err *err);

/* The other ranks' part, where each keeps moments of its own, once run->state has rank 0's step:
 * they are read from the same checkpoint. Chunks of its files are shared by neighbours, so that
 * after a change of the number of ranks about twice the moments are read in all. Nothing elsewhere.
 */
int resume_moments(struct run *run, struct err *err);

#endif
