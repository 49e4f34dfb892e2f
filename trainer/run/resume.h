/* SPDX-License-Identifier: Apache-2.0 */
/* Brings a run back from a checkpoint: compares its record with this run's parameters, and reads
 * its tensors into the state by the tensor table. */
#ifndef MUSTER_RESUME_H
#define MUSTER_RESUME_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Collective, once all of the run is made: rank 0 reads the newest checkpoint (run->folder), or
 * sets the initial weights, in run->state, and makes the records that later checkpoints carry.
 * Where each rank keeps its own moments, it reads these from the same checkpoint, and all share out
 * what is left to verify: neighbours share chunks of its files, so after a change of the number of
 * ranks about twice the moments are read in all. Damage that rank 0 finds, too, sets the checkpoint
 * aside, and all read the one before. The weights have yet to come from rank 0 (state_share). A
 * difference in identity, or one in the schedule that --change does not name, is EXIT_USAGE; a
 * checkpoint with other shapes EXIT_DATA. Of an imported model (step 0, "imported" in its
 * configuration) only the weights count, in fp32, fp16 or bf16, and the identity that its record
 * names. Returns 0, -1 or ERR_SHARED. */
int resume(struct run *run, struct err *err);

#endif
