/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how fast the GPU does what a step can't avoid: its matrix products, and moving bytes.
 * The data is random, and the work goes on for long enough that the card is as warm and its clock
 * as low as in a training. */
#ifndef MUSTER_GEMM_TIME_H
#define MUSTER_GEMM_TIME_H

#include <stddef.h>

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/ops.h"

struct timed_gemm {
	struct gemm gemm;
	size_t count;   /* in one step */
	double seconds; /* of one product */
	bool bare;      /* the library has no algorithm with this epilogue: measured without it */
};

/* Fills in `seconds`: runs all products of a step again and again for `seconds` seconds, after a
 * warm-up of a tenth of that. `ops` must be a GPU's. 0, or -1 with err set. */
int gemm_time(struct ops *ops, struct timed_gemm *plans, size_t count, double seconds,
	struct err *err);

/* Bytes per second that the device copies, reads plus writes, measured for `seconds` seconds; 0
 * with err set on an error. */
double copy_rate(struct ops *ops, double seconds, struct err *err);

#endif
