/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a stage that every rank must pass. A rank's failure is published where its success would
 * have been, so that all leave together, with one status, and none waits for a peer that has
 * gone. */
#ifndef MUSTER_STATUS_EXCHANGE_H
#define MUSTER_STATUS_EXCHANGE_H

#include <stdbool.h>

#include "launch/rank_status.h"
#include "trainer/comm/comm.h"

/* What collective functions return, beside 0 and -1, for an error that all ranks have in the same
 * words: only rank 0 logs it. */
#define ERR_SHARED (-2)

/* Judges the statuses of all ranks. Returns 0 when all succeeded, else ERR_SHARED: every rank gets
 * the text and the status of the lowest rank that failed, preceded by the name of that rank and the
 * number of others that say the same. A rank with `speaks` also logs the failures that have other
 * reasons. */
int status_share(const struct rank_status *words, int size, bool speaks, struct err *err);

/* Collective. `rc` and `err` are this rank's outcome of the stage. Returns what status_share()
 * does, with rank 0 as the one that speaks, or -1 for a failure of the collective itself. */
int status_exchange(struct comm *comm, const char *stage, const char *node, int rc,
	struct err *err);

#endif
