/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an NCCL communicator of all ranks over the rendezvous. It is made on every rank, or it
 * fails on every rank by the deadline, and the error names the ranks at fault. NCCL's own bootstrap
 * waits for ever for a rank that does not come. */
#ifndef MUSTER_NCCL_BOOTSTRAP_H
#define MUSTER_NCCL_BOOTSTRAP_H

#include "common/err.h"
#include "common/ident.h"
#include "launch/rdzv.h"

struct nccl_library; /* launch/nccl_library.h */

/* Collective. Makes a non-blocking communicator (ncclComm_t in *comm) on the calling thread's
 * current device. `library` NULL: nccl_library_load(). `number`: 0, 1, … for the communicators of a
 * run, in the same order on all ranks. `timeout`, in seconds, applies to the exchange of the ID and
 * to the connecting, separately. On an error all reachable ranks return the same text. EXIT_USAGE
 * if, among other causes, a rank has no NCCL, no GPU, another version, or a GPU that another rank
 * uses; EXIT_LOST if ranks did not come. */
int nccl_bootstrap(struct rdzv *rdzv, const struct ident *ident, const struct nccl_library *library,
	int number, double timeout, void **comm, struct err *err);

/* Waits until the calls on a communicator have begun (`result` is what the last one returned) and
 * their work on `stream` (a CUstream of the current context) has ended, at most `timeout` seconds.
 * EXIT_LOST: the time passed, or NCCL reports that a rank is gone. After an error the communicator
 * can only be ended with `orderly` 0. */
int nccl_bootstrap_wait(const struct nccl_library *library, void *comm, int result, void *stream,
	double timeout, struct err *err);

/* Ends a communicator. `orderly`: all ranks call this now, and their work is finished first, within
 * `timeout` seconds; otherwise it is aborted. -1: it was aborted because ending it took longer or
 * failed. */
int nccl_bootstrap_end(const struct nccl_library *library, void *comm, int orderly, double timeout,
	struct err *err);

#endif
