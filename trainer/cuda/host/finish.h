/* SPDX-License-Identifier: Apache-2.0 */
/* What a product's epilogue makes, by kernels of ours: behind the plain product where the library
 * has no such epilogue, or where the two are faster. */
#ifndef MUSTER_CUDA_FINISH_H
#define MUSTER_CUDA_FINISH_H

#include "trainer/cuda/host/gemm.h"

/* o->d holds the plain product. `scratch` has cuda_column_sums_scratch(depth, columns) floats where
 * the epilogue is bias-grad. Returns at once, with 0 or the cudaError_t of a launch. */
int cuda_finish(const struct gemm *gemm, const struct gemm_operands *o, float *scratch,
	void *stream);

#endif
