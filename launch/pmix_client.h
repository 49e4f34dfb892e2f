/* SPDX-License-Identifier: Apache-2.0 */
/* This process as a client of the launcher's PMIx server, with a deadline on every call. Only
 * launch/rdzv_pmix.c uses it.
 *
 * Slurm ignores PMIX_TIMEOUT, so no caller waits inside PMIx: calls are non-blocking or run in a
 * thread. A callback that comes too late still finds its struct answer, since the caller and the
 * callback each hold a reference to it. */
#ifndef MUSTER_PMIX_CLIENT_H
#define MUSTER_PMIX_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/clock.h"
#include "common/err.h"
#include "launch/pmix_library.h"
#include "launch/rdzv_provider.h"

#define PMIX_LOCAL_SECONDS 10.0 /* for what this node's server knows itself */

/* A process can initialize PMIx only once, so identity and rendezvous share this. */
extern struct pmix_client {
	bool open;
	atomic_bool lost;           /* a peer, or the server, is lost: leave without PMIx_Finalize */
	atomic_bool without_server; /* the server is gone */
	bool fences_lost;           /* a fence did not complete: later ones would not either */
	pmix_proc_t self;
} pmix_client;

/* The answer to a call. */
struct answer {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int references;
	bool done;
	pmix_status_t status;
	long number; /* if it is an integer */
	char *bytes; /* if it is a string or byte object; with a NUL after it */
	size_t size;
	pmix_info_t info; /* of the call: PMIx reads it after the call has returned */
};

/* For the caller and one callback; each drops it once. NULL on error. */
struct answer *answer_create(struct err *err);
void answer_drop(struct answer *answer);
/* The callback's side, in place of answer_drop(): sets `status` and wakes the caller. */
void answer_give(struct answer *answer, pmix_status_t status);
/* The caller's side: PMIX_ERR_TIMEOUT if the deadline passes first. */
pmix_status_t answer_wait(struct answer *answer, struct deadline deadline);

/* Connects to the server, once. At exit the process calls pmix_client_close(), unless a peer is
 * lost: if a client dies without that, Slurm kills its whole step, even if the client only had a
 * usage error. */
int pmix_client_open(struct err *err);
/* Calls PMIx_Finalize, unless a peer is lost. */
void pmix_client_close(void);

/* Asks for a key of a rank (PMIX_RANK_WILDCARD: of the job). NULL on error; otherwise use
 * answer_wait() and answer_drop(). With `refresh` the rank is asked again for what it has published
 * since. */
struct answer *pmix_client_ask(pmix_rank_t rank, const char *key, bool refresh, struct err *err);

/* The node of a rank, from the map that the server sent at start; "" if it sent none. */
void pmix_client_node(int rank, char *node, size_t size);
/* Those of all ranks, malloc'ed. NULL if the server sent none. */
char (*pmix_client_nodes(int world_size))[RDZV_NODE_SIZE];

/* Puts a value, for pmix_client_publish(). One byte more than the value is put, since PMIx does not
 * take an empty byte object as a value. */
int pmix_client_put(const char *key, const void *value, size_t size, struct err *err);
/* Publishes all that was put; `key`, the last of it, and `timeout` are for messages. PMIx_Commit
 * with a deadline. */
int pmix_client_publish(const char *key, struct deadline deadline, double timeout, struct err *err);

/* A malloc'ed copy with a NUL after it; NULL when out of memory. */
char *pmix_client_copy(const char *from, size_t size);

#endif
