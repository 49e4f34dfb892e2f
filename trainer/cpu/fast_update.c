/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, the blocks of the gradient norm and additions over threads, with the bits of
 * plain_update.c. */
#include "config.h"

#include <string.h>

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/kernels.h"

static size_t at_most(size_t a, size_t b)
{
	return a < b ? a : b;
}

static struct adamw_state from_element(const struct adamw_state *state, size_t count)
{
	return (struct adamw_state) { state->weights + count, state->m + count, state->v + count };
}

static void adamw(struct ops *ops, const struct adamw_state *to, const struct adamw_state *from,
	float *compute, const float *grad, size_t count, int decay)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;
	const struct step_params *params = ops->params;

	if (params->masked)
		return;
#pragma omp parallel for if (count > ELEMENTS)
	for (size_t i = 0; i < count; i += ELEMENTS) {
		const struct adamw_state part_to = from_element(to, i), part_from = from_element(from, i);

		kernels->adamw(params, &part_to, &part_from, compute + i, grad + i,
			at_most(count - i, ELEMENTS), decay ? params->weight_decay : 0);
	}
}

static void square_sums(struct ops *ops, double *sums, const float *x, size_t count)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for if (count > ELEMENTS)
	for (size_t i = 0; i < count; i += NORM_BLOCK)
		sums[i / NORM_BLOCK] = kernels->square_sum(x + i, at_most(count - i, NORM_BLOCK));
}

static void add(struct ops *ops, float *out, const float *a, const float *b, size_t count)
{
	const struct kernels *kernels = cpu_of(ops)->kernels;

#pragma omp parallel for if (count > ELEMENTS)
	for (size_t i = 0; i < count; i += ELEMENTS)
		kernels->add(out + i, a + i, b + i, at_most(count - i, ELEMENTS));
}

static void zero(struct ops *ops, float *out, size_t count)
{
#pragma omp parallel for if (count > ELEMENTS)
	for (size_t i = 0; i < count; i += ELEMENTS)
		memset(out + i, 0, at_most(count - i, ELEMENTS) * sizeof *out);
}

void fast_update_install(struct ops *ops)
{
	ops->adamw = adamw;
	ops->square_sums = square_sums;
	ops->add = add;
	ops->zero = zero;
}
