/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL functions that the bootstrap and the communicator need, loaded on first use: a program
 * that makes no communicator runs without NCCL and GPU, and a program that has already loaded an
 * NCCL (PyTorch brings its own) shares that one. */
#ifndef MUSTER_NCCL_LIBRARY_H
#define MUSTER_NCCL_LIBRARY_H

#include <nccl.h>

#include "common/err.h"

struct nccl_library {
	ncclResult_t (*get_version)(int *version);
	ncclResult_t (*get_unique_id)(ncclUniqueId *id);
	ncclResult_t (
		*init)(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config);
	ncclResult_t (*get_async_error)(ncclComm_t comm, ncclResult_t *error);
	ncclResult_t (*finalize)(ncclComm_t comm);
	ncclResult_t (*destroy)(ncclComm_t comm);
	ncclResult_t (*abort)(ncclComm_t comm);
	ncclResult_t (*group_start)(void);
	ncclResult_t (*group_end)(void);
	ncclResult_t (*send)(const void *buffer, size_t count, ncclDataType_t type, int peer,
		ncclComm_t comm, cudaStream_t stream);
	ncclResult_t (*recv)(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
		cudaStream_t stream);
	ncclResult_t (*all_gather)(const void *mine, void *all, size_t count, ncclDataType_t type,
		ncclComm_t comm, cudaStream_t stream);
	ncclResult_t (*all_reduce)(const void *from, void *to, size_t count, ncclDataType_t type,
		ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
	const char *(*get_error_string)(ncclResult_t result);
	const char *(*get_last_error)(ncclComm_t comm);
	/* GPUs that this process sees; -1 with err: the driver can't be asked. */
	int (*count_gpus)(struct err *err);
	/* Whether the work queued on a stream (a CUstream of the current context) has ended: 1 yes, 0
	 * not yet, -1 with err. */
	int (*stream_ended)(void *stream, struct err *err);
};

/* This process's libnccl.so.2; it stays loaded. NULL on error: the text has the dynamic linker's
 * message and the remedy. */
const struct nccl_library *nccl_library_load(struct err *err);

#endif
