/* SPDX-License-Identifier: Apache-2.0 */
/* The validation loss: the mean over fixed samples in file order, with the same bits at every world
 * size. */
#ifndef MUSTER_VALIDATE_H
#define MUSTER_VALIDATE_H

#include <stdint.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"

struct validation;

/* Uses the first `samples` samples, in microbatches of `microbatch`; rank (i mod world size)
 * computes microbatch i. Borrows dataset, model and comm. NULL on error. */
struct validation *validation_create(const struct dataset *dataset, struct model *model,
	struct comm *comm, uint64_t samples, int microbatch, int vocabulary, struct err *err);

/* Called after each microbatch of this rank, with the number of its samples. */
typedef void validation_watch(void *arg, int samples);
void validation_set_watch(struct validation *validation, validation_watch *watch, void *arg);

/* Collective. A sample that can't be read is an error of all ranks (ERR_SHARED) that names the
 * rank, or says why where there is only one. */
int validation_loss(struct validation *validation, double *loss, struct err *err);

/* `validation` may be NULL. */
void validation_destroy(struct validation *validation);

#endif
