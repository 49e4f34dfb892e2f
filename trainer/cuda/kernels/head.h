/* SPDX-License-Identifier: Apache-2.0 */
/* How the head processes its rows: in chunks, so that the logits never exist as a whole. For each
 * chunk of R rows of x[M,C], with wte[P,C] padded to P rows, of which those from V on are 0:
 *
 *   1. logits[R,P] = x·wteᵀ: a product in the compute type
 *   2. cuda_cross_entropy(losses, logits, …, R, V, P, …): the gradient replaces the logits, with 0
 *      in the padding
 *   3. dx[R,C] = logits·wte: a product
 *   4. dwte[P,C] = or += logitsᵀ·x: a product in fp32, which adds from the second chunk on
 *
 * Without gradients it ends after 2. dwte's bits depend on the chunks, so these depend on the
 * problem alone, never on free memory. Every chunk costs one more pass over dwte, so it is as large
 * as the bound allows. */
#ifndef MUSTER_CUDA_HEAD_H
#define MUSTER_CUDA_HEAD_H

#include <stddef.h>

#define HEAD_CHUNK_MOST ((size_t)1 << 30) /* bytes of logits at a time */
#define HEAD_ROW_MULTIPLE 128 /* rows of every chunk but the last: whole tiles of the products */

/* Rows of a chunk for M rows of P logits of `bytes` each: as few chunks as the bound allows, of
 * equal size but for the last, which has the rest. 0 for no rows. The logits' scratch is this times
 * P times `bytes`. */
static inline size_t head_chunk_rows(size_t M, size_t P, size_t bytes)
{
	size_t most = HEAD_CHUNK_MOST / (P * bytes) / HEAD_ROW_MULTIPLE * HEAD_ROW_MULTIPLE;
	most = most < HEAD_ROW_MULTIPLE ? HEAD_ROW_MULTIPLE : most;
	size_t chunks = (M + most - 1) / most;
	size_t rows = chunks ? (M + chunks - 1) / chunks : 0;
	rows = (rows + HEAD_ROW_MULTIPLE - 1) / HEAD_ROW_MULTIPLE * HEAD_ROW_MULTIPLE;
	return rows < M ? rows : M;
}

#endif
