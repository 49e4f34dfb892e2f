/* SPDX-License-Identifier: Apache-2.0 */
/* This process as a client of the launcher's PMIx server: calls with a deadline of our own. Only
 * launch/rdzv_pmix.c uses it.
 *
 * No call of PMIx is waited for by PMIx itself, since Slurm ignores PMIX_TIMEOUT. The calls are the
 * non-blocking ones, or made by a thread; what returns too late finds its struct answer still
 * there, since the caller and the callback each hold a reference to it. */
#ifndef MUSTER_PMIX_CLIENT_H
#define MUSTER_PMIX_CLIENT_H

#include <pmix.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"

#define PMIX_LOCAL_SECONDS 10.0 /* for what the server of this node knows itself */

/* PMIx can be initialised once in a process; identity and rendezvous share it. */
extern struct pmix_client {
	bool open;
	bool lost;        /* a peer is: the process leaves without PMIx_Finalize */
	bool fences_lost; /* one has not completed: those after it would not either */
	pmix_proc_t self;
} pmix_client;

/* What a call is answered with. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int references;
	bool done;
	pmix_status_t status;
	long number; /* of an integer value */
	char *bytes; /* of a string or byte object, with a NUL behind */
	size_t size;
	pmix_info_t info; /* of the call: PMIx reads it after the call has returned */
};

/* For the caller and one callback; each drops it once. NULL on error. */
struct answer *answer_create(struct err *err);
void answer_drop(struct answer *answer);
/* The callback's side, instead of dropping: from now on `status` counts. */
void answer_give(struct answer *answer, pmix_status_t status);
/* The caller's side: PMIX_ERR_TIMEOUT when the deadline passes first. */
pmix_status_t answer_wait(struct answer *answer, struct deadline deadline);

/* Connects to the server, once. The process says goodbye at its exit, unless a peer is lost: a
 * client that dies without that has its whole step killed by Slurm, also when it only had a usage
 * error. */
int pmix_client_open(struct err *err);
/* The goodbye. */
void pmix_client_close(void);

/* Asks for a key of a rank (PMIX_RANK_WILDCARD: of the job). NULL on error; else answer_wait() and
 * answer_drop(). With `refresh` the rank itself is asked again for what it has published since. */
struct answer *pmix_client_ask(pmix_rank_t rank, const char *key, bool refresh, struct err *err);

/* Where a rank runs, from the map that the server gave us at start; "" where it tells nothing. */
void pmix_client_node(int rank, char *node, size_t size);

/* For pmix_client_publish(). One byte more than the value is put, since an empty byte object is not
 * a value to PMIx. */
int pmix_client_put(const char *key, const void *value, size_t size, struct err *err);
/* All that was put, the last of it `key`: PMIx_Commit with a deadline. */
int pmix_client_publish(const char *key, double timeout, struct err *err);

/* malloc'ed, with a NUL behind; NULL without memory. */
char *pmix_client_copy(const char *from, size_t size);

#endif
