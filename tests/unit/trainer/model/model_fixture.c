/* SPDX-License-Identifier: Apache-2.0 */
/* Small models for the tests. */
#include "tests/unit/trainer/model/model_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "order/philox.h"

const struct model_config fixture_gpt2 = { .kind = MODEL_GPT2,
	.layers = 2,
	.width = 12,
	.heads = 3,
	.context = 7,
	.vocabulary = 19 };
const struct model_config fixture_forgetful_gpt2 = { .kind = MODEL_GPT2,
	.layers = 3,
	.width = 12,
	.heads = 3,
	.context = 7,
	.vocabulary = 19,
	.recompute = RECOMPUTE_BLOCK };
const struct model_config fixture_mlp = { .kind = MODEL_MLP,
	.inputs = 9,
	.hidden = 11,
	.classes = 5 };
const struct model_config fixture_normal_mlp = { .kind = MODEL_MLP,
	.inputs = 9,
	.hidden = 11,
	.classes = 5,
	.batchnorm = true };

double fixture_unit(uint64_t seed, uint32_t a, uint32_t b)
{
	const uint32_t counter[4] = { a, b, 0, 0 }, key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	uint32_t out[4];
	philox(counter, key, out);
	return out[0] * 0x1p-32;
}

float *fixture_arena(const struct fixture *f)
{
	float *arena =
		f->ops->device->alloc(f->ops->device, tensor_table_gradients(f->table) * sizeof *arena);
	assert_non_null(arena);
	return arena;
}

/* Values far from the initial ones, at which every gradient is well away from zero. */
static void randomise(const struct fixture *f)
{
	for (int i = 0; i < f->table->count; i++) {
		const struct tensor *row = &f->table->rows[i];
		const double middle = row->init == TENSOR_ONE ? 1.0 : 0.0,
					 half = row->dims == 2 ? 0.6 : 0.4;
		for (size_t k = 0; k < row->count; k++)
			f->weights[row->offset + k] = row->role != TENSOR_PARAMETER
				? (float)middle
				: (float)(middle + half * (2 * fixture_unit(7, (uint32_t)i, (uint32_t)k) - 1));
	}
}

struct fixture fixture_open(const struct model_config *config, bool plain, int batch)
{
	struct err err = { 0 };
	struct fixture f = { .model = model_create(config, &err),
		.ops = ops_cpu_create(plain, &err),
		.batch = batch };
	assert_string_equal(err.text, "");
	assert_int_equal(model_prepare(f.model, f.ops, batch, &err), 0);
	f.table = model_tensors(f.model);
	f.weights = fixture_arena(&f);
	f.grads = fixture_arena(&f);
	randomise(&f);
	model_bind(f.model, f.weights, f.weights);
	f.ops->params->loss_scale = 1.0f;
	return f;
}

void fixture_close(struct fixture *f)
{
	f->ops->device->release(f->ops->device, f->weights);
	f->ops->device->release(f->ops->device, f->grads);
	model_destroy(f->model);
	f->ops->destroy(f->ops);
}

static int32_t pick(uint64_t seed, uint32_t what, int place, int count)
{
	return (int32_t)(fixture_unit(seed, what, (uint32_t)place) * count);
}

struct batch fixture_batch(const struct fixture *f, int samples, uint64_t seed)
{
	const struct model_config *c = model_config_of(f->model);
	const bool gpt2 = c->kind == MODEL_GPT2;
	struct batch b = { .samples = samples,
		.positions = gpt2 ? c->context : 1,
		.features = gpt2 ? 0 : c->inputs };
	const int targets = samples * b.positions;
	b.targets = calloc((size_t)targets, sizeof *b.targets);
	for (int i = 0; i < targets; i++)
		b.targets[i] =
			pick(seed, 1, i, 8) == 0 ? -1 : pick(seed, 2, i, gpt2 ? c->vocabulary : c->classes);
	if (gpt2) {
		b.tokens = calloc((size_t)targets, sizeof *b.tokens);
		for (int i = 0; i < targets; i++)
			b.tokens[i] = pick(seed, 3, i, c->vocabulary);
	} else {
		b.inputs = calloc((size_t)(samples * b.features), sizeof *b.inputs);
		for (int i = 0; i < samples * b.features; i++)
			b.inputs[i] = (float)(2 * fixture_unit(seed, 4, (uint32_t)i) - 1);
	}
	return b;
}

void fixture_free_batch(struct batch *batch)
{
	free(batch->tokens);
	free(batch->inputs);
	free(batch->targets);
	*batch = (struct batch) { 0 };
}

double fixture_distance(const struct tensor *row, const float *a, const float *b)
{
	double difference = 0, size = 0;
	for (size_t k = row->offset; k < row->offset + row->count; k++) {
		difference += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
		size += (double)b[k] * b[k];
	}
	return sqrt(difference / size);
}
