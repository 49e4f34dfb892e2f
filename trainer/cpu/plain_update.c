/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, the blocks of the gradient norm and the addition of the canonical reduction, in plain C.
 * Each is made of correctly rounded operations in a stated order, so every implementation must give
 * exactly these bits. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "trainer/cpu/cpu.h"

static void adamw(struct ops *ops, const struct adamw_state *to, const struct adamw_state *from,
	float *compute, const float *grad, size_t count, int decay)
{
	const struct step_params *p = ops->params;
	float weight_decay = decay ? p->weight_decay : 0;

	if (p->masked)
		return;
	for (size_t i = 0; i < count; i++) {
		float g = grad[i] * p->clip, w = from->weights[i];
		float m = fmaf(1.0f - p->beta1, g - from->m[i], from->m[i]);
		float v = fmaf(1.0f - p->beta2, g * g - from->v[i], from->v[i]);
		float direction = m * p->bias1 / (sqrtf(v * p->bias2) + p->epsilon);

		to->m[i] = m;
		to->v[i] = v;
		to->weights[i] = fmaf(-p->learning_rate, fmaf(weight_decay, w, direction), w);
		compute[i] = to->weights[i];
	}
}

/* The tree: lane j sums the squares of elements j, j + NORM_LANES, … in ascending order (a product
 * of two floats is exact in fp64); then the upper half of the lanes is added to the lower half
 * until one lane is left. */
static double square_sum(const float *x, size_t count)
{
	double lanes[NORM_LANES] = { 0 };

	for (size_t i = 0; i < count; i++)
		lanes[i % NORM_LANES] += (double)x[i] * (double)x[i];
	for (int width = NORM_LANES / 2; width >= 1; width /= 2)
		for (int j = 0; j < width; j++)
			lanes[j] += lanes[j + width];
	return lanes[0];
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	for (size_t at = 0; at < count; at += NORM_BLOCK)
		sums[at / NORM_BLOCK] =
			square_sum(x + at, count - at < NORM_BLOCK ? count - at : NORM_BLOCK);
}

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

static void zero(struct ops *ops, float *out, size_t count)
{
	memset(out, 0, count * sizeof *out);
}

void plain_update_install(struct ops *ops)
{
	ops->adamw = adamw;
	ops->square_sums = square_sums;
	ops->add = add;
	ops->zero = zero;
}
