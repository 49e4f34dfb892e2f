/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the operations share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/trainer/ops/ops_fixture.h"

struct ops *fixture_ops(bool plain, int batch, int positions, int width, int heads, int vocabulary)
{
	struct ops_shapes shapes = { .batch = batch,
		.positions = positions,
		.width = width,
		.heads = heads,
		.vocabulary = vocabulary,
		.hidden = 4 * width };
	struct err err;
	struct ops *ops = ops_cpu_create(plain, &err);

	if (!ops || ops->prepare(ops, &shapes, &err))
		fail_msg("%s", err.text);
	ops->params->loss_scale = 1;
	return ops;
}

static uint32_t next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

float *fixture_floats(size_t count, float scale, uint32_t seed)
{
	float *x = malloc((count ? count : 1) * sizeof(*x));

	assert_non_null(x);
	for (size_t i = 0; i < count; i++)
		x[i] = seed ? scale * ((float)next(&seed) / 8388608.0f - 1.0f) : scale;
	return x;
}

int32_t *fixture_tokens(int count, int vocabulary, uint32_t seed)
{
	int32_t *tokens = malloc((size_t)count * sizeof(*tokens));

	assert_non_null(tokens);
	for (int i = 0; i < count; i++)
		tokens[i] = (int32_t)(next(&seed) % (uint32_t)vocabulary);
	return tokens;
}

void fixture_near_double(const char *what, const float *a, const double *b, size_t count,
	double tolerance)
{
	double largest = 1e-30;

	for (size_t i = 0; i < count; i++)
		largest = fmax(largest, fabs(b[i]));
	for (size_t i = 0; i < count; i++)
		if (!(fabs(a[i] - b[i]) <= tolerance * largest))
			fail_msg("%s[%zu] is %.9g, not %.9g (largest %.3g)", what, i, (double)a[i], b[i],
				largest);
}

void fixture_near(const char *what, const float *a, const float *b, size_t count, double tolerance)
{
	double *exact = malloc((count ? count : 1) * sizeof(*exact));

	assert_non_null(exact);
	for (size_t i = 0; i < count; i++)
		exact[i] = (double)b[i];
	fixture_near_double(what, a, exact, count, tolerance);
	free(exact);
}

void fixture_same_bits(const char *what, const void *a, const void *b, size_t bytes)
{
	const unsigned char *p = a, *q = b;

	for (size_t i = 0; i < bytes; i++)
		if (p[i] != q[i])
			fail_msg("%s differs at byte %zu", what, i);
}
