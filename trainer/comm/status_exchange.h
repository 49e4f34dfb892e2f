/* SPDX-License-Identifier: Apache-2.0 */
/* A stage that every rank must pass: a rank's failure is told where its success would have been, so
 * that all leave together, with one status, and no one waits for a peer that has gone. */
#ifndef MUSTER_STATUS_EXCHANGE_H
#define MUSTER_STATUS_EXCHANGE_H

#include "common/err.h"
#include "trainer/comm/comm.h"

/* What collective functions return, besides 0 and -1, for an error that all ranks have in the same
 * words: rank 0 says it. */
#define ERR_SHARED (-2)

/* Collective. `rc` and `err` are this rank's outcome of the stage. Returns 0 when all ranks
 * succeeded, else ERR_SHARED: every rank gets the text and the status of the lowest rank that
 * failed, with its rank and node in front. Failures of other ranks for other reasons are logged by
 * rank 0. -1 is a failure of the collective itself. */
int status_exchange(struct comm *comm, const char *stage, const char *node, int rc,
	struct err *err);

#endif
