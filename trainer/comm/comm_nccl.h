/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's provider for ranks that compute on GPUs, over NCCL and TCP. */
#ifndef MUSTER_COMM_NCCL_H
#define MUSTER_COMM_NCCL_H

#include "trainer/comm/comm_provider.h"

/* Bytes of a GPU's memory that NCCL takes for its connections, by what its documentation lets
 * expect: 4 MiB a channel and direction (NCCL_BUFFSIZE), more for sends between many ranks. An
 * allowance: how many there are NCCL decides. */
#define COMM_NCCL_BYTES ((size_t)512 << 20)

/* Only where HAVE_NCCL and HAVE_CUBLAS are defined; for comm_open_over(), on the current
 * GPU of the calling thread. */
extern const struct comm_provider comm_nccl;

#endif
