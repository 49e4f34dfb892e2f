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

void optimizer_update(struct ops *ops, const struct tensor_table *table,
	const struct zero_shard *own, size_t own_count, const struct adamw_state *to,
	const struct adamw_state *from, const float *grads)
{
	for (size_t k = 0; k < own_count; k++)
		for (int i = 0; i < table->count; i++) {
			const struct tensor *row = &table->rows[i];
			const struct zero_shard run = zero_shard_of(&own[k], row);
			const struct adamw_state run_to = at(to, run.first), run_from = at(from, run.first);
			if (run.first < run.end)
				ops->adamw(ops, &run_to, &run_from, run_to.weights, grads + run.first,
					run.end - run.first, row->decay);
		}
}

/* The first chunk of a run. */
static struct adamw_chunk chunk_of(const struct zero_shard *run, size_t moments, bool decay)
{
	size_t left = run->end - run->first;
	return (struct adamw_chunk) { .first = run->first,
		.moments = moments,
		.decay = decay,
		.count = (uint32_t)(left < ADAMW_CHUNK ? left : ADAMW_CHUNK) };
}

size_t optimizer_chunks(const struct tensor_table *table, const struct zero_shard *own,
	size_t own_count, struct adamw_chunk *chunks, size_t most)
{
	size_t count = 0, moments = 0;
	for (size_t k = 0; k < own_count; moments += own[k].end - own[k].first, k++)
		for (int i = 0; i < table->count; i++) {
			const struct tensor *row = &table->rows[i];
			struct zero_shard run = zero_shard_of(&own[k], row);
			for (; run.first < run.end; run.first += ADAMW_CHUNK, count++)
				if (count < most)
					chunks[count] = chunk_of(&run, run.first - own[k].first + moments, row->decay);
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
