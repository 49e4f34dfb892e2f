/* SPDX-License-Identifier: Apache-2.0 */
/* The steps. Order of step k: forward and backward of all slots, reduction, update, log line,
 * validation if due, save if due; a resume starts at k + 1. */
#ifndef MUSTER_TRAIN_LOOP_H
#define MUSTER_TRAIN_LOOP_H

#include "common/err.h"
#include "trainer/run/run.h"

struct train_end {
	int stop; /* signal of a notice on some rank that ended the loop before its last step, or 0; the
				 same on every rank */
	struct async_saver_losses losses; /* of the last step */
};

/* Runs from run->state.step + 1 to the last step or to the boundary at which a stop was seen by
 * all. Collective; on an error that all ranks have it returns ERR_SHARED. */
int train_loop(struct run *run, struct train_end *end, struct err *err);

/* Rank 0: what the saves that have become durable tell: a line in the metrics each, and the
 * schedule of those to come. */
void train_loop_take_saves(struct run *run);

#endif
