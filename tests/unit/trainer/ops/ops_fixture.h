/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the operations share: an ops with its shapes prepared, filled arrays,
 * comparisons. */
#ifndef MUSTER_OPS_FIXTURE_H
#define MUSTER_OPS_FIXTURE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "trainer/ops/ops.h"

/* An ops prepared for shapes up to these; the test fails where it can't be made. */
struct ops *fixture_ops(bool plain, int batch, int positions, int width, int heads, int vocabulary);

/* `count` floats in [-scale, scale], or all `scale` for seed 0; from malloc. */
float *fixture_floats(size_t count, float scale, uint32_t seed);
int32_t *fixture_tokens(int count, int vocabulary, uint32_t seed);

/* Fails unless all |a - b| <= tolerance · (largest |b|, at least 1e-30); `what` names the array. */
void fixture_near(const char *what, const float *a, const float *b, size_t count, double tolerance);
void fixture_near_double(const char *what, const float *a, const double *b, size_t count,
	double tolerance);
void fixture_same_bits(const char *what, const void *a, const void *b, size_t bytes);

#endif
