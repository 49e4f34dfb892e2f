/* SPDX-License-Identifier: Apache-2.0 */
/* The part of muster-doctor that takes all ranks: they look at each other, and rank 0 gets what
 * each has seen. */
#ifndef MUSTER_DOCTOR_MEET_H
#define MUSTER_DOCTOR_MEET_H

#include "checks/facts.h"
#include "launch/rdzv.h"

/* Collective. Adds to `own` what takes several ranks to see: the way to rank 0, the clock, the
 * shared directory (`dir`, NULL: none). *all is malloc'ed and the caller's: on rank 0 the facts of
 * all ranks, elsewhere NULL. A rank that does not come is an error with status EXIT_LOST. */
int doctor_meet(struct rdzv *rdzv, struct facts *own, const char *dir, struct facts **all,
	struct err *err);

#endif
