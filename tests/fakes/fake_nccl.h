/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL on the host, as far as the communicator calls it, beside the stand-in of the runtime, whose
 * streams it queues on. Ranks are processes that share a file; sums are in the order of the ranks.
 * As with the real one, a rank that waits for one that does not come waits until the abort; and
 * nobody is told of a rank that has died unless `error_at` says so. */
#ifndef MUSTER_TESTS_FAKE_NCCL_H
#define MUSTER_TESTS_FAKE_NCCL_H

#include <stdbool.h>

#include "launch/nccl_library.h"

/* What it is to do in this process, and what it has seen. Zeroed: all is well. */
struct fake_nccl {
	int version;  /* 0: 22809 */
	bool no_gpu;  /* none is visible */
	int hang_at;  /* from this call on (1: the first group or collective) nothing gets on any more;
					 0: never */
	int error_at; /* from this one on the communicator has `error` */
	ncclResult_t error;
	int calls;         /* groups and collectives so far */
	int communicators; /* alive */
	int aborted, finalized;
};

extern struct fake_nccl fake_nccl;
/* nccl_library_load() of a program that is linked with this gives it. */
extern const struct nccl_library fake_nccl_library;

#endif
