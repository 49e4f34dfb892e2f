/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator's provider for ranks that compute on GPUs, over NCCL and TCP. */
#ifndef MUSTER_COMM_NCCL_H
#define MUSTER_COMM_NCCL_H

#include "trainer/comm/comm_provider.h"

/* An allowance, in bytes, for the device memory that NCCL takes for its connections. Its
 * documentation has 4 MiB a channel and direction (NCCL_BUFFSIZE), and more for sends between many
 * ranks; NCCL itself decides how many channels there are. */
#define COMM_NCCL_BYTES ((size_t)512 << 20)

/* Defined only with HAVE_NCCL and HAVE_CUBLAS. For comm_open_over(); it uses the calling
 * thread's current GPU. */
extern const struct comm_provider comm_nccl;

#endif
