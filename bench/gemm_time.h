/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the GPU is at what a step can't do without: its matrix products, and moving bytes. On
 * random data, one after the other for so long that the card is as warm and its clock as low as in
 * a training. */
#ifndef MUSTER_GEMM_TIME_H
#define MUSTER_GEMM_TIME_H

#include <stddef.h>

#include "common/err.h"
#include "trainer/cuda/host/gemm_plans.h"
#include "trainer/ops/ops.h"

struct timed_gemm {
	struct gemm gemm;
	size_t count;   /* of a step */
	double seconds; /* each */
	bool bare;      /* the library has no algorithm with its epilogue: measured without */
};

/* Fills in `seconds`: all products of a step again and again for so many seconds, after as long a
 * warm-up as a tenth of that. `ops` are the GPU's. */
int gemm_time(struct ops *ops, struct timed_gemm *plans, size_t count, double seconds,
	struct err *err);

/* Bytes a second that the device copies, those that are read and those that are written; 0 with an
 * error. */
double copy_rate(struct ops *ops, double seconds, struct err *err);

#endif
