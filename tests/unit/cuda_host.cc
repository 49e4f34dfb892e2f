// SPDX-License-Identifier: Apache-2.0
// The hand-written kernels, compiled for the host, so that their arithmetic and indexing are tested without a GPU too.
#define cuda_add host_cuda_add
#include "trainer/cuda/add.cu"
