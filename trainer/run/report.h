/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's reports on standard output: the parameters in force at the start, then one line a
 * step. */
#ifndef MUSTER_REPORT_H
#define MUSTER_REPORT_H

#include "trainer/run/metrics.h"
#include "trainer/run/run.h"

/* Collective, before the first step. */
int report_start(const struct run *run, struct err *err);
void report_step(const struct run *run, const struct metrics_step *step);
void report_validation(const struct run *run, uint64_t step, float loss);
void report_sample(const struct run *run, uint64_t step, const char *text);

#endif
