/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding on the GPU. Its reference is struct ops' embedding and embedding_backward; in fp32
 * the bits are the same.
 *
 * M = B·T tokens, each in [0, V); rows of C elements. Tensors that are `void *` are of `type`,
 * gradients of weights fp32. All pointers are the device's, `stream` is a cudaStream_t. Each call
 * queues its kernels and returns 0 or the cudaError_t of a launch. */
#ifndef MUSTER_CUDA_EMBEDDING_H
#define MUSTER_CUDA_EMBEDDING_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/cuda/kernels/token_sort.h"
#include "trainer/cuda/kernels/type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out[M,C] = wte[tokens[m],:] + wpe[m % T,:] */
int cuda_embedding(void *out, const int32_t *tokens, const void *wte, const void *wpe, int B, int T,
	int C, enum cuda_type type, void *stream);

/* Bytes of `scratch`, aligned to 4, for the sorted tokens. */
static inline size_t cuda_embedding_scratch(int M)
{
	return token_sort_scratch(M) * sizeof(uint32_t);
}

/* dwte[V,C] += dout[M,C] at tokens, each row's sum in ascending m; rows whose token does not occur
 * are left alone. dwpe[T,C] = or += (accumulate) the sum over B, ascending. */
int cuda_embedding_backward(float *dwte, float *dwpe, void *scratch, const void *dout,
	const int32_t *tokens, int B, int T, int C, int V, int accumulate, enum cuda_type type,
	void *stream);

#ifdef __cplusplus
}
#endif

#endif
