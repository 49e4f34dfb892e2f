/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate's schedule, clipping, and the update of all tensors. */
#include "trainer/state/optimizer.h"

#include <math.h>
#include <string.h>

double optimizer_learning_rate(const struct optimizer_config *config, uint64_t step)
{
	const double highest = config->learning_rate, minimum = config->minimal_learning_rate;
	if (step <= config->warmup)
		return highest * (double)step / (double)config->warmup;
	if (step > config->steps)
		return minimum;
	double progress =
		(double)(step - 1 - config->warmup) / (double)(config->steps - config->warmup);
	return minimum + (highest - minimum) * 0.5 * (1.0 + cos(M_PI * progress));
}

static float bias_correction(double beta, uint64_t step)
{
	return (float)(1.0 / (1.0 - pow(beta, (double)step)));
}

void optimizer_begin(const struct optimizer_config *config, uint64_t step, int64_t valid,
	struct step_params *params)
{
	*params = (struct step_params) {
		.step = step,
		.learning_rate = (float)optimizer_learning_rate(config, step),
		.beta1 = (float)config->beta1,
		.beta2 = (float)config->beta2,
		.epsilon = (float)config->epsilon,
		.weight_decay = (float)config->weight_decay,
		.bias1 = bias_correction(config->beta1, step),
		.bias2 = bias_correction(config->beta2, step),
		.clip = 1.0f,
		.loss_scale = valid > 0 ? (float)(1.0 / (double)valid) : 0.0f,
	};
}

bool optimizer_clip(const struct optimizer_config *config, double loss, double norm,
	struct step_params *params)
{
	params->masked = !isfinite(loss) || !isfinite(norm);
	params->clip = config->clip > 0 && norm > config->clip ? (float)(config->clip / norm) : 1.0f;
	return !params->masked;
}

static struct adamw_state at(const struct adamw_state *arenas, size_t offset)
{
	return (
		struct adamw_state) { arenas->weights + offset, arenas->m + offset, arenas->v + offset };
}

void optimizer_update_run(struct ops *ops, const struct tensor_table *table,
	const struct adamw_state *to, const struct adamw_state *from, float *compute,
	const float *grads, size_t first, size_t end)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		size_t begin = row->offset > first ? row->offset : first;
		size_t stop = row->offset + row->count < end ? row->offset + row->count : end;
		if (row->role != TENSOR_PARAMETER || begin >= stop)
			continue;
		const struct adamw_state run_to = at(to, begin), run_from = at(from, begin);
		float *cast =
			compute ? (float *)(void *)((char *)compute + begin * ops->element) : run_to.weights;
		ops->adamw(ops, &run_to, &run_from, cast, grads + begin, stop - begin, row->decay);
	}
}

static size_t add_chunks(const struct tensor *row, size_t begin, size_t end,
	struct adamw_chunk *chunks, size_t count, size_t most)
{
	for (; begin < end; begin += ADAMW_CHUNK, count++)
		if (count < most)
			chunks[count] = (struct adamw_chunk) { .first = begin,
				.moments = begin,
				.decay = row->decay,
				.count = (uint32_t)(end - begin < ADAMW_CHUNK ? end - begin : ADAMW_CHUNK) };
	return count;
}

size_t optimizer_chunks(const struct tensor_table *table, size_t first, size_t end,
	struct adamw_chunk *chunks, size_t most)
{
	size_t count = 0;
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		size_t begin = row->offset > first ? row->offset : first;
		size_t stop = row->offset + row->count < end ? row->offset + row->count : end;
		if (row->role == TENSOR_PARAMETER)
			count = add_chunks(row, begin, stop, chunks, count, most);
	}
	return count;
}

void optimizer_keep(const struct tensor_table *table, const struct adamw_state *to,
	const struct adamw_state *from)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		if (row->role != TENSOR_PARAMETER)
			memmove(to->weights + row->offset, from->weights + row->offset,
				row->count * sizeof *to->weights);
	}
}

void optimizer_update(struct ops *ops, const struct tensor_table *table,
	const struct adamw_state *to, const struct adamw_state *from, const float *grads)
{
	optimizer_update_run(ops, table, to, from, NULL, grads, 0, table->elements);
	optimizer_keep(table, to, from);
}
