/* SPDX-License-Identifier: Apache-2.0 */
/* recompute: what is forgotten and computed again has the same bits, nothing is asked for or told
 * in another order, and memory is what the estimate is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/trainer/model/model_fixture.h"

#define BATCH 3
#define SLOTS 2
#define MICROBATCHES 2 /* of a slot, and a validation in front of each */
#define MOST 500
#define LEVELS (RECOMPUTE_BLOCK + 1)

static const struct model_config small = { .kind = MODEL_GPT2,
	.layers = 3,
	.width = 12,
	.heads = 3,
	.context = 7,
	.vocabulary = 19 };
/* Products, attention and the head are cut into blocks, which end in remainders. */
static const struct model_config wide = { .kind = MODEL_GPT2,
	.layers = 3,
	.width = 72,
	.heads = 3,
	.context = 37,
	.vocabulary = 131 };
static const struct model_config single = { .kind = MODEL_GPT2,
	.layers = 1,
	.width = 12,
	.heads = 2,
	.context = 7,
	.vocabulary = 19 };
static const struct model_config split = { .kind = MODEL_GPT2,
	.layers = 4,
	.width = 20,
	.heads = 2,
	.context = 9,
	.vocabulary = 33,
	.split_embedding = true };

/* What a pass asked for and told. */
struct events {
	int at[MOST], count;
};

struct outcome {
	float *grads[SLOTS];
	double losses[2 * SLOTS * MICROBATCHES];
	struct events events;
};

static void note(struct events *events, int event)
{
	assert_true(events->count < MOST);
	events->at[events->count++] = event;
}

static void asked(void *arg, int layer)
{
	note(arg, 1000 + layer);
}
static void told(void *arg, int layer)
{
	note(arg, layer);
}

static void train_slot(struct fixture *f, int slot, struct outcome *outcome)
{
	for (int i = 0; i < MICROBATCHES; i++) {
		int place = slot * MICROBATCHES + i;
		int64_t valid;
		struct batch batch = fixture_batch(f, BATCH - i, (uint64_t)place + 1),
					 other = fixture_batch(f, BATCH, 50);
		model_loss(f->model, &other, &outcome->losses[2 * place], &valid);
		model_train(f->model, &batch, outcome->grads[slot], i > 0, &outcome->losses[2 * place + 1],
			&valid, told, &outcome->events);
		fixture_free_batch(&batch);
		fixture_free_batch(&other);
	}
}

static struct outcome run(const struct model_config *config, int level, bool plain)
{
	struct model_config own = *config;
	struct outcome outcome = { 0 };
	own.recompute = (enum model_recompute)level;
	struct fixture f = fixture_open(&own, plain, BATCH);
	size_t bytes = tensor_table_gradients(f.table) * sizeof(float);
	model_set_weights_wait(f.model, asked, &outcome.events);
	for (int slot = 0; slot < SLOTS; slot++) {
		float *grads = outcome.grads[slot] = fixture_arena(&f);
		train_slot(&f, slot, &outcome);
		outcome.grads[slot] = malloc(bytes);
		memcpy(outcome.grads[slot], grads, bytes);
		f.ops->device->release(f.ops->device, grads);
	}
	fixture_close(&f);
	return outcome;
}

static size_t gradient_bytes(const struct model_config *config)
{
	struct err err;
	struct model *model = model_create(config, &err);
	size_t bytes = tensor_table_gradients(model_tensors(model)) * sizeof(float);
	model_destroy(model);
	return bytes;
}

static void clear(struct outcome *outcome)
{
	for (int slot = 0; slot < SLOTS; slot++)
		free(outcome->grads[slot]);
}

static void same_at_each_level(const struct model_config *config, bool plain)
{
	struct outcome kept = run(config, RECOMPUTE_NONE, plain);
	size_t bytes = gradient_bytes(config);
	for (int level = RECOMPUTE_NONE + 1; level < LEVELS; level++) {
		struct outcome again = run(config, level, plain);
		for (int slot = 0; slot < SLOTS; slot++)
			if (memcmp(kept.grads[slot], again.grads[slot], bytes))
				fail_msg("level %d: the gradients of slot %d differ", level, slot);
		assert_memory_equal(kept.losses, again.losses, sizeof kept.losses);
		assert_memory_equal(&kept.events, &again.events, sizeof kept.events);
		clear(&again);
	}
	assert_true(kept.losses[1] > 0 && kept.losses[1] != kept.losses[3]);
	clear(&kept);
}

static void levels_have_the_same_bits(void **state)
{
	const struct model_config *const configs[] = { &small, &wide, &single, &split };
	for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++)
		for (int plain = 0; plain < 2; plain++)
			same_at_each_level(configs[i], plain);
}

/* ---- memory ---- */

#define ROUND(bytes) (((bytes) + 255) / 256 * 256)

/* What each level forgets of a block, by hand. */
static size_t forgotten(int level, size_t M, size_t C, size_t H, size_t element)
{
	size_t row = ROUND(M * C * element), statistic = ROUND(M * sizeof(float));
	switch (level) {
	case RECOMPUTE_NORM: return 2 * (row + 2 * statistic);
	case RECOMPUTE_MLP: return 2 * ROUND(M * 4 * C * element);
	case RECOMPUTE_BLOCK:
		return ROUND(M * 3 * C * element) + ROUND(M * H * sizeof(float)) + 2 * row;
	default: return 0;
	}
}

/* Of all blocks but one, at that level and those before it. */
static void each_level_needs_less_by_what_it_forgets(void **state)
{
	struct err err;
	const size_t B = 4, elements[] = { 4, 2 };
	for (int k = 0; k < 4; k++) {
		struct model_config config = wide;
		size_t M = B * (size_t)config.context, element = elements[k / 2], before = 0;
		for (int level = 0; level < LEVELS; level++) {
			config.recompute = (enum model_recompute)level;
			struct model *model = model_create(&config, &err);
			size_t bytes = model_activations(model, (int)B, k % 2, element);
			size_t less = (size_t)(config.layers - 1)
				* forgotten(level, M, (size_t)config.width, (size_t)config.heads, element);
			if (level)
				assert_int_equal(bytes, before - less);
			before = bytes;
			model_destroy(model);
		}
	}
}

/* An operation that only counts what is asked for. */
static size_t asked_bytes;
static void *(*real_alloc)(struct device *device, size_t bytes);

static void *counting_alloc(struct device *device, size_t bytes)
{
	asked_bytes += bytes;
	return real_alloc(device, bytes);
}

static void what_is_said_is_allocated(void **state)
{
	struct err err;
	for (int level = 0; level < LEVELS; level++) {
		struct model_config config = wide;
		config.recompute = (enum model_recompute)level;
		struct model *model = model_create(&config, &err);
		struct ops *ops = ops_cpu_create(true, &err);
		real_alloc = ops->device->alloc;
		ops->device->alloc = counting_alloc;
		asked_bytes = 0;
		assert_int_equal(model_prepare(model, ops, BATCH, &err), 0);
		assert_int_equal(asked_bytes, model_activations(model, BATCH, false, sizeof(float)));
		model_destroy(model);
		ops->destroy(ops);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(levels_have_the_same_bits),
		cmocka_unit_test(each_level_needs_less_by_what_it_forgets),
		cmocka_unit_test(what_is_said_is_allocated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
