/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks tell each other at one point of the run: whether each can go on, and a little
 * beside. A failure is published where the success would have been, so that all ranks fail at once
 * and with the same line. */
#ifndef MUSTER_RANK_STATUS_H
#define MUSTER_RANK_STATUS_H

#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

#define RANK_STATUS_DATA 65000 /* bytes at most */

/* What this rank says; borrowed during the call. */
struct rank_status_own {
	const struct err *failure; /* why it can't go on; NULL: it can, and the rest counts */
	int number;                /* the caller's, as are the bytes */
	const void *data;
	size_t size;
};

/* What a rank has said. */
struct rank_status {
	int status; /* 0, or that of its failure */
	int number;
	char node[256];
	const char *data; /* or the failure's text; a NUL behind it */
	size_t size;
	void *memory; /* where `data` is */
};

/* Collective: one put and one fence. One word a rank, for rank_statuses_free; NULL on error:
 * EXIT_LOST names the ranks that did not come. `key` is the same on all ranks, and used once.
 * `timeout` in seconds, 0: the rendezvous's. */
struct rank_status *rank_status_exchange(struct rdzv *rdzv, const struct ident *ident,
	const char *key, const struct rank_status_own *own, double timeout, struct err *err);

/* 0 when all can go on. Else -1 with the same text and status on each rank: of the first that has a
 * reason of its own; where there is none, of the first that lost its peers; then of the first that
 * asks to be requeued and says why, and at last of one whose text is empty: it stops since another
 * does. Its name is put in front, unless the text has one from an earlier point. */
int rank_statuses_check(const struct rank_status *words, int count, struct err *err);

/* NULL is allowed. */
void rank_statuses_free(struct rank_status *words, int count);

/* Who said a word, as messages name him: "rank 3 (on n2)". */
struct rank_name {
	char text[300];
};
struct rank_name rank_status_name(const struct rank_status *words, int rank);

#endif
