/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the rows of a matrix in fixed parts: part i is rows [i·rows, (i+1)·rows), and the parts
 * are added in order. The number of parts follows from the number of rows alone, so the bits do,
 * too. */
#ifndef MUSTER_CUDA_PARTIALS_H
#define MUSTER_CUDA_PARTIALS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a part of M rows: few enough that every multiprocessor gets some, but enough that the
 * parts are small compared with the matrix. */
static inline int partial_rows(int M)
{
	int rows = 16;
	while ((M - 1) / rows >= 1024)
		rows *= 2;
	return rows;
}

static inline int partial_count(int M)
{
	return (M + partial_rows(M) - 1) / partial_rows(M);
}

/* For k < 2: out[k][C] = or += the sum of `partials`[k][C] over `count` of these pairs; where
 * `pair` is 1, partials is [count][C] and out[1] may be NULL. Adds in the order of the parts, 32
 * runs of them side by side. Moves pair·C·(count + 1)·4 bytes. */
int cuda_partials_fold(float *const out[2], const float *partials, int count, int pair, int C,
	int accumulate, void *stream);

#ifdef __cplusplus
}
#endif

#endif
