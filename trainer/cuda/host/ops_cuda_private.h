/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the GPU's ops: their state, and the functions that fill the table. */
#ifndef MUSTER_CUDA_OPS_CUDA_PRIVATE_H
#define MUSTER_CUDA_OPS_CUDA_PRIVATE_H

#include "trainer/cuda/host/cuda.h"
#include "trainer/cuda/host/gemm.h"
#include "trainer/cuda/kernels/type.h"
#include "trainer/ops/ops.h"

#define CUDA_PARAMS 16 /* copies of step_params that may be on their way */

/* The struct in ops->state. */
struct ops_cuda {
	struct step_params params;       /* host copy, which the trainer writes */
	struct step_params *params_ring; /* [CUDA_PARAMS] pinned */
	unsigned int params_next;
	struct step_params *params_device; /* read by kernels */
	void *stream;                      /* the training's, of the device */
	enum cuda_type type;               /* of activations */
	enum gemm_mode mode;
	char libraries[400];
	size_t own_libraries;     /* the part of its text without cuDNN, once that is there */
	struct ops_shapes shapes; /* given to prepare() */
	struct gemm_engine *engine;
	void *workspace;
	struct attention_cudnn *cudnn; /* NULL: our own attention */
	void *cudnn_workspace;
	void *scratch; /* used by one op at a time */
	void *logits;  /* of one chunk of rows */
};

static inline struct ops_cuda *ops_cuda_of(struct ops *ops)
{
	return ops->state;
}

void ops_cuda_linear_install(struct ops *ops);
void ops_cuda_passes_install(struct ops *ops);

#endif
