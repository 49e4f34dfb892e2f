/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the products' algorithms by timing all that may be used, where gemm_choose takes the
 * library's first. Each is run on operands of its real size, full of random numbers and cold in the
 * cache, in rounds over all candidates, so that a clock that goes down or up meets them all. What
 * gives other numbers than the first, or other bits in a second run, is left out; what is not
 * faster than the first by a margin isn't chosen. An epilogue is timed against the plain product
 * with a kernel of ours behind it, too. */
#ifndef MUSTER_CUDA_TUNE_H
#define MUSTER_CUDA_TUNE_H

#include "trainer/cuda/host/tune_bench.h"

struct tune_result {
	int timed, others;  /* products, and those that aren't the library's first now */
	int untimed;        /* for want of time or memory */
	int wrong;          /* algorithms that were left out */
	double first, best; /* milliseconds of one run of each that was timed: by the first algorithms,
						   by the chosen ones */
	double seconds;     /* that it took */
};

/* Chooses for those of the list that have no choice yet, and for the plain products that stand
 * behind their epilogues. Its memory is taken from what the device has left, and given back. -1
 * when a run breaks the device, or a plain product can't be made at all. */
int tune_gemms(const struct tune *tune, const struct gemm *list, size_t count,
	struct tune_result *result, struct err *err);

/* One line for people; returns `out`. */
char *tune_text(const struct tune_result *result, char *out, size_t size);

#endif
