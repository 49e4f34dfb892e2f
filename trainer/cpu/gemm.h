/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products whose bits do not depend on the number of threads: the shape alone decides the
 * grid of tiles, and each tile is one thread's. */
#ifndef MUSTER_CPU_GEMM_H
#define MUSTER_CPU_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/* c[m,n] = or += (accumulate) a[m,k] · b[k,n], dense and row-major; a transposed operand is stored
 * as [k,m] or [n,k]. */
struct gemm {
	const float *a, *b;
	float *c;
	int m, n, k;
	bool a_transposed, b_transposed, accumulate;
};

/* A part of c that a thread has just computed. */
struct gemm_part {
	int row, rows, column, columns;
};

/* Called for each part while it is in that thread's cache. */
typedef void gemm_done(void *arg, const struct gemm_part *part);

/* `done` may be NULL. */
void gemm_run(const struct gemm *gemm, gemm_done *done, void *arg);

/* "dnnl", or "own" where oneDNN was not found at build time. */
const char *gemm_provider(void);

#endif
