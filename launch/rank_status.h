/* SPDX-License-Identifier: Apache-2.0 */
/* A status exchange: all ranks tell each other, at one point of the run, whether they can go on,
 * with a little data. A failure is published where the success would have been, so that all ranks
 * fail at once and with the same line. */
#ifndef MUSTER_RANK_STATUS_H
#define MUSTER_RANK_STATUS_H

#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

#define RANK_STATUS_DATA 65000 /* bytes at most */

/* This rank's status; borrowed during the call. */
struct rank_status_own {
	const struct err *failure; /* why it can't go on; NULL: it can, and the rest counts */
	int number;                /* up to the caller, as is the data */
	const void *data;
	size_t size;
};

/* Another rank's status. */
struct rank_status {
	int status; /* 0, or its failure's exit status */
	int number;
	char node[256];
	const char *data; /* or the failure's text; a NUL follows */
	size_t size;
	void *memory; /* what `data` points into */
};

/* Collective: one put and one fence. Returns one status per rank, for rank_statuses_free; NULL on
 * error: EXIT_LOST names the ranks that did not come. `key` is the same on all ranks and used once.
 * `timeout` in seconds, 0: the rendezvous's. */
struct rank_status *rank_status_exchange(struct rdzv *rdzv, const struct ident *ident,
	const char *key, const struct rank_status_own *own, double timeout, struct err *err);

/* 0 if all can go on. Otherwise -1 with the same text and status on each rank: those of the first
 * rank with its own reason; if there is none, of the first that lost its peers; then of the first
 * that asks for a requeue and says why; last of one with an empty text, which stops because another
 * rank does. The rank's name comes first, unless the text has one from an earlier exchange. */
int rank_statuses_check(const struct rank_status *words, int count, struct err *err);

/* NULL is allowed. */
void rank_statuses_free(struct rank_status *words, int count);

/* A rank's name in messages: "rank 3 (on n2)". */
struct rank_name {
	char text[300];
};
struct rank_name rank_status_name(const struct rank_status *words, int rank);

#endif
