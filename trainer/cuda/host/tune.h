/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the products' algorithms by timing all usable ones, where gemm_choose takes the library's
 * first. Each runs on operands of its real size, full of random numbers and cold in the cache. All
 * candidates run in each round, so that a changing clock affects all of them. A candidate is left
 * out if it gives other numbers than the first, or other bits in a second run; and it is chosen
 * only if it is faster than the first by a margin. An epilogue is also timed against the plain
 * product with a kernel of ours after it. */
#ifndef MUSTER_CUDA_TUNE_H
#define MUSTER_CUDA_TUNE_H

#include "trainer/cuda/host/tune_bench.h"

struct tune_result {
	int timed, others;  /* products timed; and those of them that no longer use the library's first
						   algorithm */
	int untimed;        /* for lack of time or memory */
	int wrong;          /* algorithms that were left out */
	double first, best; /* milliseconds for one run of each timed product: with the first
						   algorithms, with the chosen ones */
	double seconds;     /* seconds that tuning took */
};

/* Chooses for the products of the list that have no choice yet, and for the plain products that
 * their epilogues need. Uses free device memory, and releases it. -1 when a run breaks the device,
 * or a plain product can't be computed at all. */
int tune_gemms(const struct tune *tune, const struct gemm *list, size_t count,
	struct tune_result *result, struct err *err);

/* Writes one line for the log; returns `out`. */
char *tune_text(const struct tune_result *result, char *out, size_t size);

#endif
