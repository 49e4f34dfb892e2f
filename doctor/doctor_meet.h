/* SPDX-License-Identifier: Apache-2.0 */
/* The part of muster-doctor that needs all ranks: they examine each other, and rank 0 collects the
 * results. */
#ifndef MUSTER_DOCTOR_MEET_H
#define MUSTER_DOCTOR_MEET_H

#include "checks/facts.h"
#include "launch/rdzv.h"

/* Collective. Adds to `own` what takes several ranks to see: the connection to rank 0, the clock,
 * the shared directory (`dir`, NULL: none). *all is malloc'ed and the caller's: on rank 0 the facts
 * of all ranks, elsewhere NULL. If a rank does not come, the error has status EXIT_LOST. */
int doctor_meet(struct rdzv *rdzv, struct facts *own, const char *dir, struct facts **all,
	struct err *err);

#endif
