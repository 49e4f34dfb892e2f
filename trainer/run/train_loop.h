/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop. Step k: forward and backward of all slots, reduction, update, log line,
 * validation if due, save if due. A resume starts at k + 1. */
#ifndef MUSTER_TRAIN_LOOP_H
#define MUSTER_TRAIN_LOOP_H

#include "common/err.h"
#include "trainer/run/run.h"

struct train_end {
	int stop; /* the signal of a notice on some rank that ended the loop early, or 0; the same on
				 every rank */
	struct save_step losses; /* of the last step */
};

/* Runs from run->state.step + 1 to the last step, or to the end of the step in which all ranks
 * learned of a stop. Collective. ERR_SHARED when all ranks have the error. */
int train_loop(struct run *run, struct train_end *end, struct err *err);

/* Rank 0: for each save that has become durable, writes a line to the metrics and updates the save
 * scheduler. */
void train_loop_take_saves(struct run *run);

#endif
