/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/cuda/host/finish.h"

#include "trainer/cuda/kernels/column_sums.h"
#include "trainer/cuda/kernels/elements.h"

static enum cuda_type type_of(enum product_type type)
{
	return type == PRODUCT_BF16 ? CUDA_BF16 : CUDA_FP32;
}

int cuda_finish(const struct product *p, const struct product_operands *o, float *scratch, void *stream)
{
	static const enum cuda_activation activations[] = { [PRODUCT_BIAS] = CUDA_IDENTITY, [PRODUCT_BIAS_GELU] = CUDA_GELU,
		[PRODUCT_BIAS_RELU] = CUDA_RELU };
	switch (p->epilogue) {
	case PRODUCT_PLAIN:
		return 0;
	case PRODUCT_GELU_GRAD:
		return cuda_gelu_backward(o->d, o->d, o->kept, (size_t)p->rows * (size_t)p->columns, type_of(p->out), stream);
	case PRODUCT_BIAS_GRAD:
		return cuda_column_sums(o->sums, scratch, o->w, p->depth, p->columns, p->adds, type_of(p->in), stream);
	default:
		return cuda_activation(o->d, o->kept, o->d, o->bias, p->rows, p->columns, activations[p->epilogue], type_of(p->out), stream);
	}
}
