/* SPDX-License-Identifier: Apache-2.0 */
/* Everything of an attempt before its first step, as a ladder of stages. */
#ifndef MUSTER_PREPARE_H
#define MUSTER_PREPARE_H

#include "common/err.h"
#include "trainer/run/run.h"

/* Fills in the run, whose settings are there: who is there, the checkpoint directory, data, model,
 * what is resumed; and, unless the run is finished already, what is traced and saved. What was made
 * until an error stays in it, for the caller to release. Collective: a stage in which ranks may
 * fail alone ends with an agreement, so that all leave together. ERR_SHARED: all ranks have the
 * error. */
int prepare(struct run *run, struct err *err);

#endif
