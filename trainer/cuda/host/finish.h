/* SPDX-License-Identifier: Apache-2.0 */
/* Does what a product's epilogue does with our own kernels, after the plain product: where the
 * library lacks the epilogue, or where this is faster. */
#ifndef MUSTER_CUDA_FINISH_H
#define MUSTER_CUDA_FINISH_H

#include "trainer/cuda/host/gemm.h"

/* o->d holds the plain product. `scratch` has cuda_column_sums_scratch(depth, columns) floats if
 * the epilogue is bias-grad. Queues the kernel and returns 0 or the cudaError_t of the launch. */
int cuda_finish(const struct gemm *gemm, const struct gemm_operands *o, float *scratch,
	void *stream);

#endif
