/* SPDX-License-Identifier: Apache-2.0 */
/* Rendezvous: how ranks that know only their own identity find each other, by put, fence and get.
 * Every call has a deadline. */
#ifndef MUSTER_RDZV_H
#define MUSTER_RDZV_H

#include <stddef.h>

#include "common/err.h"
#include "common/ident.h"

struct rdzv; /* one per process; its calls come from one thread at a time */

/* Opens the rendezvous of `ident`. `provider` is "pmix", "pmi2", "file", "single" or NULL: then
 * MUSTER_RDZV names it, or else it is the first that fits (PMIx or PMI2 if this process was started
 * under it, file if MUSTER_RDZV_DIR is set, single for a world of one). Meets all ranks once, or
 * leaves that to the first fence (pmix). `timeout`, in seconds, is for this call and the default
 * for the others. NULL on error: status EXIT_USAGE if no provider fits (the message says what to
 * do, and is the same on every rank, so that only rank 0 needs to print it), EXIT_LOST if peers did
 * not come (the text names them). */
struct rdzv *rdzv_open(const struct ident *ident, const char *provider, double timeout,
	struct err *err);

/* Publishes a value of this rank; visible to the others after the next fence. `key` up to 64
 * characters of [A-Za-z0-9._-], each used once; value up to 64 KiB. */
int rdzv_put(struct rdzv *rdzv, const char *key, const void *value, size_t size, struct err *err);

/* The same for a value that is read after the next fence, and before the fence after that: then it
 * is forgotten. Every rank puts one, under the same key. For values that are put again and again: a
 * PMIx server gets slower with each value that it has to keep. */
int rdzv_put_passing(struct rdzv *rdzv, const char *key, const void *value, size_t size,
	struct err *err);
int rdzv_get_passing(struct rdzv *rdzv, int rank, const char *key, void **value, size_t *size,
	double timeout, struct err *err);

/* Waits for all ranks; afterwards every earlier put is visible. timeout 0: the default of
 * rdzv_open. If it expires, the text names the missing ranks, with their nodes as far as known;
 * status EXIT_LOST. */
int rdzv_fence(struct rdzv *rdzv, double timeout, struct err *err);

/* Reads what `rank` put under `key` before the last fence. *value is malloc'ed, has a NUL after its
 * *size bytes, and is the caller's. */
int rdzv_get(struct rdzv *rdzv, int rank, const char *key, void **value, size_t *size,
	double timeout, struct err *err);

/* The default deadline, in seconds. */
double rdzv_timeout(const struct rdzv *rdzv);

/* Name of the provider: "pmix", "pmi2", "file" or "single". */
const char *rdzv_provider(const struct rdzv *rdzv);

/* Asks the launcher to end the whole job step with `status`. Returns if it can't. */
void rdzv_abort(struct rdzv *rdzv, int status, const char *why);

/* Leaves. `orderly` false if this rank has failed, or a peer is known to be lost: then nothing is
 * waited for (no PMIx_Finalize), and those who meet in a folder learn of it at their next fence.
 * NULL is allowed. */
void rdzv_close(struct rdzv *rdzv, int orderly);

/* Leaves because of a fault: logs it and, if a peer is lost, gives the other ranks two seconds to
 * log theirs. Returns the exit status. */
int rdzv_leave(struct rdzv *rdzv, const struct err *err);

#endif
