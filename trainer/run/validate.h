/* SPDX-License-Identifier: Apache-2.0 */
/* The validation loss: the mean over fixed samples in file order, the same bits at every world
 * size. */
#ifndef MUSTER_VALIDATE_H
#define MUSTER_VALIDATE_H

#include <stdint.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"

struct validation;

/* Uses the first `samples` samples, in microbatches of `microbatch`; microbatch i is rank (i mod
 * world size)'s. */
struct validation *validation_create(const struct dataset *dataset, struct model *model,
	struct comm *comm, uint64_t samples, int microbatch, int vocabulary, struct err *err);

/* Collective. A sample that can't be read is an error of all ranks (ERR_SHARED), which names the
 * rank. */
int validation_loss(struct validation *validation, double *loss, struct err *err);

/* NULL is allowed. */
void validation_destroy(struct validation *validation);

#endif
