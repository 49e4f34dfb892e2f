/* SPDX-License-Identifier: Apache-2.0 */
/* A status exchange: all ranks tell each other, at one point of the run, whether they can go on,
 * with a little data. A failure is published where the success would have been, so that all ranks
 * fail at once and with the same line. */
#ifndef MUSTER_RANK_STATUS_H
#define MUSTER_RANK_STATUS_H

#include <stdbool.h>
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
	double patience; /* seconds for the word of a rank that may have none (0: all have one) */
};

/* Another rank's status. */
struct rank_status {
	int status; /* 0, or its failure's exit status */
	int number;
	char node[256];
	const char *data; /* or the failure's text, with a NUL after it (NULL: a rank up to this one has
						 none) */
	size_t size;
	void *memory; /* what `data` points into */
};

/* Collective: one put and one fence. Returns one status per rank, for rank_statuses_free; NULL on
 * error: EXIT_LOST names the ranks that did not come. `key` is the same on all ranks and used once.
 * `timeout` in seconds, 0: the rendezvous's. */
struct rank_status *rank_status_exchange(struct rdzv *rdzv, const struct ident *ident,
	const char *key, const struct rank_status_own *own, double timeout, struct err *err);

/* The rank whose failure is that of all, or -1 if all can go on: the lowest that failed. With
 * `causes_first` it is the lowest with its own reason, else the lowest that lost its peers, else
 * the lowest that asks for a requeue and says why, else one with an empty text, which stops because
 * another rank does. */
int rank_statuses_worst(const struct rank_status *words, int count, bool causes_first);

/* 0 if all can go on. Otherwise -1 with the text and status of rank_statuses_worst(), causes
 * first. The rank's name comes first, unless the text has one from an earlier exchange. */
int rank_statuses_check(const struct rank_status *words, int count, struct err *err);

/* NULL is allowed. */
void rank_statuses_free(struct rank_status *words, int count);

/* A rank's name in messages: "rank 3 (on n2)". */
struct rank_name {
	char text[300];
};
struct rank_name rank_status_name(const struct rank_status *words, int rank);

#endif
