/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts tokens in ascending order on the GPU, equal ones in the order of their places. So one warp
 * can sum each row of the embedding's gradient, in a fixed order and without atomic additions. */
#ifndef MUSTER_CUDA_TOKEN_SORT_H
#define MUSTER_CUDA_TOKEN_SORT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens that a block sorts. */
#define TOKEN_SORT_TILE 2048

/* Elements of `scratch`: two sets of tokens and their places, and each block's count of each
 * digit. */
static inline size_t token_sort_scratch(int M)
{
	return 4 * (size_t)M + 256 * (((size_t)M + TOKEN_SORT_TILE - 1) / TOKEN_SORT_TILE);
}

/* Sorts tokens[M], each in [0, V), by as many digits of eight bits as V needs, the lowest first.
 * Afterwards (*sorted)[i] and its place tokens[(*places)[i]] lie in scratch. Device pointers.
 * Queues the kernels and returns 0 or the cudaError_t of a launch. */
int cuda_token_sort(const uint32_t **sorted, const uint32_t **places, uint32_t *scratch,
	const int32_t *tokens, int M, int V, void *stream);

#ifdef __cplusplus
}
#endif

#endif
