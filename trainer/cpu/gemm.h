/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products whose bits do not depend on the number of threads: a grid of tiles fixed by the
 * shape, one thread each. */
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

/* The part of c that one thread has just computed. */
struct gemm_part {
	int row, rows, column, columns;
};

/* Called on each part while it lies in that thread's cache. */
typedef void gemm_done(void *arg, const struct gemm_part *part);

/* `done` may be NULL. */
void gemm_run(const struct gemm *gemm, gemm_done *done, void *arg);

/* "dnnl", or "own" where oneDNN was not found at build time. */
const char *gemm_provider(void);

#endif
