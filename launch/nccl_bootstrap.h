/* SPDX-License-Identifier: Apache-2.0 */
/* An NCCL communicator of all ranks, made over the rendezvous: it comes on every rank, or fails on
 * every rank by the deadline with the ranks at fault named. NCCL's own bootstrap waits for ever for
 * a rank that does not come. */
#ifndef MUSTER_NCCL_BOOTSTRAP_H
#define MUSTER_NCCL_BOOTSTRAP_H

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

struct nccl_library; /* launch/nccl_library.h */

/* Collective. Makes a non-blocking communicator (ncclComm_t in *comm) on the current device of the
 * calling thread. `library` NULL: the process's own. `number`: 0, 1, … for the communicators of a
 * run, in the same order on all ranks. `timeout` in seconds bounds the exchange of the id and the
 * connecting, each. On an error all ranks return the same text but those that can't be reached any
 * more: EXIT_USAGE where a rank has no NCCL, no GPU, another version or a GPU that is another's,
 * too; EXIT_LOST where ranks did not come. */
int nccl_bootstrap(struct rdzv *rdzv, const struct ident *ident, const struct nccl_library *library,
	int number, double timeout, void **comm, struct err *err);

/* Waits until the calls on a communicator have begun (`result` is what the last one returned) and
 * what they have queued on `stream` (CUstream, of the current context) has ended, at most `timeout`
 * seconds. EXIT_LOST: that passed, or NCCL says that a rank is gone. After an error the
 * communicator can only be ended, without order. */
int nccl_bootstrap_wait(const struct nccl_library *library, void *comm, int result, void *stream,
	double timeout, struct err *err);

/* Ends it. `orderly`: all ranks do so now, and what they have begun is finished first, within
 * `timeout` seconds; else it is aborted. -1: it was aborted because that took longer or failed. */
int nccl_bootstrap_end(const struct nccl_library *library, void *comm, int orderly, double timeout,
	struct err *err);

#endif
