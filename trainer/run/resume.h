/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a run back from a checkpoint: compares its record with this run's parameters, and reads
 * its tensors into the state by the tensor table. */
#ifndef MUSTER_RESUME_H
#define MUSTER_RESUME_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Rank 0's part, once all of the run is made: reads the newest checkpoint (run->folder), or sets
 * the initial weights, in run->state; and makes the records that later checkpoints carry. A
 * difference in identity, or one in the schedule that --change does not name, is EXIT_USAGE; a
 * checkpoint with other shapes EXIT_DATA. Of an imported model (step 0, "imported" in its
 * configuration) only the weights count, in fp32, fp16 or bf16, and the identity that its record
 * names. */
int resume_apply(struct run *run, struct err *err);

/* The other ranks' part, where each keeps its own moments, once run->state has rank 0's step: reads
 * these from the same checkpoint. Neighbours share chunks of its files, so after a change of the
 * number of ranks about twice the moments are read in all. Does nothing elsewhere. */
int resume_moments(struct run *run, struct err *err);

#endif
