/* SPDX-License-Identifier: Apache-2.0 */
/* Maps each epilogue to our kernel for it. */
#include "trainer/cuda/host/finish.h"

#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elements.h"

static enum cuda_type type_of(enum gemm_type type)
{
	return type == GEMM_BF16 ? CUDA_BF16 : CUDA_FP32;
}

int cuda_finish(const struct gemm *p, const struct gemm_operands *o, float *scratch, void *stream)
{
	static const enum cuda_activation activations[] = { [GEMM_BIAS] = CUDA_IDENTITY,
		[GEMM_BIAS_GELU] = CUDA_GELU,
		[GEMM_BIAS_RELU] = CUDA_RELU };
	switch (p->epilogue) {
	case GEMM_PLAIN: return 0;
	case GEMM_GELU_GRAD:
		return cuda_gelu_backward(o->d, o->d, o->kept, (size_t)p->rows * (size_t)p->columns,
			type_of(p->out), stream);
	case GEMM_BIAS_GRAD:
		return cuda_column_sums(o->sums, scratch, o->w, p->depth, p->columns, p->adds,
			type_of(p->in), stream);
	default:
		return cuda_activation(o->d, o->kept, o->d, o->bias, p->rows, p->columns,
			activations[p->epilogue], type_of(p->out), stream);
	}
}
