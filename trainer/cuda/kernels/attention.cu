/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the attention kernel for a problem, by its type and the width of a head alone. */
#include "trainer/cuda/kernels/attention.h"

#include "trainer/cuda/kernels/attention_shape.h"

static attention_shape shape_of(int B, int T, int C, int H)
{
	int D = C / H;
	return { B, T, C, H, D, 1.0f / sqrtf((float)D) };
}

/* The kernels on the tensor cores copy rows 16 bytes at a time. */
static bool fits_tensor_cores(const attention_shape &shape, cuda_type type)
{
	return type == CUDA_BF16 && shape.D % 8 == 0 && shape.D <= 128;
}

extern "C" int cuda_attention(void *y, float *lse, const void *qkv, int B, int T, int C, int H,
	cuda_type type, void *stream)
{
	attention_shape shape = shape_of(B, T, C, H);
	if (attention_blocks(shape, 1) == 0)
		return 0;
	if (fits_tensor_cores(shape, type))
		return attention_mma(y, lse, qkv, shape, stream);
	return attention_plain(y, lse, qkv, shape, type, stream);
}

extern "C" int cuda_attention_backward(void *dqkv, float *scratch, const void *dy, const void *qkv,
	const void *y, const float *lse, int B, int T, int C, int H, cuda_type type, void *stream)
{
	attention_shape shape = shape_of(B, T, C, H);
	attention_gradients g = { dqkv, scratch, dy, qkv, y, lse };
	if (attention_blocks(shape, 1) == 0)
		return 0;
	if (fits_tensor_cores(shape, type))
		return attention_mma_backward(g, shape, stream);
	return attention_plain_backward(g, shape, type, stream);
}
