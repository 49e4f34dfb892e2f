/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks tell each other while they make an NCCL communicator: rank 0's unique ID, and whether
 * each can take part. A failure is published where the success would have been, so that all ranks
 * fail at once and with the same line. Uses no NCCL, so it works, and is tested, without a GPU. */
#ifndef MUSTER_NCCL_EXCHANGE_H
#define MUSTER_NCCL_EXCHANGE_H

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

#define NCCL_EXCHANGE_ID 128 /* bytes of an ncclUniqueId */

/* A rank's contribution; borrowed during the call. */
struct nccl_offer {
	int version;               /* its NCCL's, as NCCL_VERSION_CODE: 22809 is 2.28.9 */
	const void *id;            /* rank 0: NCCL_EXCHANGE_ID bytes */
	const struct err *failure; /* why it can't take part; NULL: it can */
};

/* Collective: one put and one fence. `number` tells a run's communicators apart: 0, 1, … in the
 * same order on all ranks. On success every rank has rank 0's ID. If a rank can't take part or has
 * another version than rank 0, all ranks get the same text, which names it and its node. `timeout`
 * in seconds, 0: the rendezvous's. */
int nccl_exchange(struct rdzv *rdzv, const struct ident *ident, int number,
	const struct nccl_offer *offer, double timeout, void *id, struct err *err);

/* Collective, after the ranks have connected or failed to: 0 if all have connected. Otherwise all
 * get the same text; ranks that don't reach this call are named with their nodes. */
int nccl_settle(struct rdzv *rdzv, const struct ident *ident, int number, const struct err *failure,
	double timeout, struct err *err);

#endif
