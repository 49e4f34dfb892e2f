/* SPDX-License-Identifier: Apache-2.0 */
/* model: gradients are the derivatives of the loss, sums over microbatches are sums, and the table
 * is GPT-2's. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/trainer/model/model_fixture.h"

static const struct {
	const struct model_config *config;
	bool plain;
} cases[] = { { &fixture_gpt2, true }, { &fixture_gpt2, false }, { &fixture_forgetful_gpt2, false },
	{ &fixture_mlp, true }, { &fixture_mlp, false } };
#define CASES (sizeof cases / sizeof *cases)

static double loss_of(struct fixture *f, const struct batch *batch)
{
	double loss;
	int64_t valid;
	model_loss(f->model, batch, &loss, &valid);
	return loss;
}

static void train(struct fixture *f, const struct batch *batch, float *grads, int accumulate)
{
	double loss = 0;
	int64_t valid;
	model_train(f->model, batch, grads, accumulate, &loss, &valid, NULL, NULL);
}

/* The loss with one tensor moved by `distance` along `direction`, which has length 1. */
static double moved_loss(struct fixture *f, const struct batch *batch, const struct tensor *row,
	const float *direction, double distance)
{
	float *w = f->weights + row->offset;
	float *saved = malloc(row->count * sizeof *saved);
	memcpy(saved, w, row->count * sizeof *saved);
	for (size_t k = 0; k < row->count; k++)
		w[k] = (float)(saved[k] + distance * direction[k]);
	double loss = loss_of(f, batch);
	memcpy(w, saved, row->count * sizeof *saved);
	free(saved);
	return loss;
}

/* Central differences at two distances, extrapolated (Richardson), so that a distance large enough
 * for fp32 losses leaves only terms of its fourth power. */
static double slope(struct fixture *f, const struct batch *batch, const struct tensor *row,
	const float *direction)
{
	const double h = 0.02;
	double near =
		(moved_loss(f, batch, row, direction, h) - moved_loss(f, batch, row, direction, -h))
		/ (2 * h);
	double far =
		(moved_loss(f, batch, row, direction, 2 * h) - moved_loss(f, batch, row, direction, -2 * h))
		/ (4 * h);
	return (4 * near - far) / 3;
}

/* A unit vector with all elements of one size and random signs: a wrong element anywhere in the
 * tensor shows. */
static float *signs(const struct tensor *row, uint32_t index)
{
	float *direction = malloc(row->count * sizeof *direction);
	for (size_t k = 0; k < row->count; k++)
		direction[k] = (float)((fixture_unit(31, index, (uint32_t)k) < 0.5 ? -1 : 1)
			/ sqrt((double)row->count));
	return direction;
}

/* The expected size of a random slope is |gradient| / sqrt(count): the bound is 2 % of that. */
static void check_slope(struct fixture *f, const struct batch *batch, const struct tensor *row,
	uint32_t index)
{
	const float *g = f->grads + row->offset;
	double expected = 0, norm = 0;
	float *direction = signs(row, index);
	for (size_t k = 0; k < row->count; k++) {
		expected += (double)g[k] * direction[k];
		norm += (double)g[k] * g[k];
	}
	double bound = 0.02 * sqrt(norm / (double)row->count);
	double difference = fabs(slope(f, batch, row, direction) - expected);
	if (!(norm > 0) || !(difference <= bound))
		fail_msg("%s: slope differs by %g from %g, bound %g", row->name, difference, expected,
			bound);
	free(direction);
}

static void gradients_match_differences(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 3);
		struct batch batch = fixture_batch(&f, 3, 1);
		train(&f, &batch, f.grads, 0);
		for (int r = 0; r < f.table->count; r++)
			for (uint32_t direction = 0; direction < 3; direction++)
				check_slope(&f, &batch, &f.table->rows[r], direction);
		fixture_free_batch(&batch);
		fixture_close(&f);
	}
}

static void gradients_scale_with_loss_scale(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 3);
		struct batch batch = fixture_batch(&f, 3, 1);
		float *quarter = fixture_arena(&f);
		train(&f, &batch, f.grads, 0);
		f.ops->params->loss_scale = 0.25f; /* a power of two: the same bits, another exponent */
		train(&f, &batch, quarter, 0);
		for (size_t k = 0; k < f.table->elements; k++)
			assert_true(quarter[k] * 4 == f.grads[k]);
		f.ops->device->release(f.ops->device, quarter);
		fixture_free_batch(&batch);
		fixture_close(&f);
	}
}

/* Sets all logical elements to NaN, as a slot's buffer that holds something else. */
static void spoil(const struct fixture *f, float *grads)
{
	for (int r = 0; r < f->table->count; r++)
		memset(grads + f->table->rows[r].offset, 0xff, f->table->rows[r].count * sizeof *grads);
}

static void accumulate_adds_and_its_absence_overwrites(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 3);
		struct batch a = fixture_batch(&f, 3, 1), b = fixture_batch(&f, 3, 2);
		float *sum = fixture_arena(&f), *other = fixture_arena(&f);
		train(&f, &a, sum, 0);
		train(&f, &b, other, 0);
		for (size_t k = 0; k < f.table->elements; k++)
			sum[k] += other[k];
		spoil(&f, f.grads);
		train(&f, &a, f.grads, 0);
		train(&f, &b, f.grads, 1);
		for (int r = 0; r < f.table->count; r++)
			if (!(fixture_distance(&f.table->rows[r], f.grads, sum) < 1e-6))
				fail_msg("%s: not the sum", f.table->rows[r].name);
		f.ops->device->release(f.ops->device, sum);
		f.ops->device->release(f.ops->device, other);
		fixture_free_batch(&a);
		fixture_free_batch(&b);
		fixture_close(&f);
	}
}

/* A split embedding's two parts, each overwritten or accumulated, add up to the tied gradient, and
 * the head's is final first. */
struct head {
	const struct tensor_table *table;
	const float *grads;
	float *seen;
};

static void see_head(void *arg, int layer)
{
	struct head *head = arg;
	if (layer == 0)
		memcpy(head->seen, head->grads + head->table->elements,
			head->table->split_count * sizeof *head->seen);
}

static void a_split_embedding_adds_up(void **state)
{
	struct model_config config = fixture_gpt2;
	config.split_embedding = true;
	for (int plain = 0; plain <= 1; plain++) {
		struct fixture tied = fixture_open(&fixture_gpt2, plain, 3),
					   split = fixture_open(&config, plain, 3);
		struct batch a = fixture_batch(&tied, 3, 1), b = fixture_batch(&tied, 3, 2);
		const struct tensor *wte = tensor_table_find(tied.table, "transformer.wte.weight");
		struct head head = { split.table, split.grads, fixture_arena(&split) };
		double loss = 0;
		int64_t valid;
		assert_int_equal(split.table->elements, tied.table->elements);
		assert_int_equal(split.table->split_offset, wte->offset);
		spoil(&split, split.grads);
		memset(split.grads + split.table->elements, 0xff, wte->count * sizeof *split.grads);
		train(&tied, &a, tied.grads, 0);
		train(&tied, &b, tied.grads, 1);
		train(&split, &a, split.grads, 0);
		model_train(split.model, &b, split.grads, 1, &loss, &valid, see_head, &head);
		assert_memory_equal(head.seen, split.grads + split.table->elements,
			split.table->split_count * sizeof *head.seen);
		for (size_t i = 0; i < split.table->split_count; i++)
			split.grads[wte->offset + i] += head.seen[i];
		for (int r = 0; r < tied.table->count; r++)
			if (!(fixture_distance(&tied.table->rows[r], split.grads, tied.grads)
					< (r == (int)(wte - tied.table->rows) ? 1e-6 : 1e-30)))
				fail_msg("%s: not the same gradient", tied.table->rows[r].name);
		split.ops->device->release(split.ops->device, head.seen);
		fixture_free_batch(&a);
		fixture_free_batch(&b);
		fixture_close(&tied);
		fixture_close(&split);
	}
}

/* What the ready callback saw: a copy of each group's gradients at the moment they were said to be
 * final. */
struct seen {
	const struct fixture *f;
	float *copy;
	int next, forward;
};

static void see(void *arg, int layer)
{
	struct seen *seen = arg;
	if (layer == MODEL_FORWARD_DONE) {
		assert_int_equal(seen->next, 0);
		seen->forward++;
		return;
	}
	assert_int_equal(layer, seen->next++);
	for (int r = 0; r < seen->f->table->count; r++) {
		const struct tensor *row = &seen->f->table->rows[r];
		if (row->layer == layer)
			memcpy(seen->copy + row->offset, seen->f->grads + row->offset,
				row->count * sizeof *seen->copy);
	}
}

static void ready_comes_in_order_and_only_when_final(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 3);
		struct batch batch = fixture_batch(&f, 3, 1);
		struct seen seen = { .f = &f, .copy = fixture_arena(&f) };
		double loss = 0;
		int64_t valid;
		train(&f, &batch, f.grads, 0);
		model_train(f.model, &batch, f.grads, 1, &loss, &valid, see, &seen);
		assert_int_equal(seen.next, tensor_table_layers(model_tensors(f.model)));
		assert_int_equal(seen.forward, 1);
		assert_memory_equal(seen.copy, f.grads, f.table->elements * sizeof *f.grads);
		f.ops->device->release(f.ops->device, seen.copy);
		fixture_free_batch(&batch);
		fixture_close(&f);
	}
}

/* Weights that come only when a layer is asked for; until then they are NaN. */
struct arrival {
	const struct fixture *f;
	float *weights;
	int next; /* layers from here on have come */
};

static void bring(void *arg, int layer)
{
	struct arrival *arrival = arg;
	if (layer >= arrival->next)
		return;
	assert_int_equal(layer, --arrival->next);
	for (int r = 0; r < arrival->f->table->count; r++) {
		const struct tensor *row = &arrival->f->table->rows[r];
		if (row->layer == layer)
			memcpy(arrival->weights + row->offset, arrival->f->weights + row->offset,
				row->count * sizeof *arrival->weights);
	}
}

/* What is no parameter is there all the time. */
static void await_weights(struct arrival *arrival)
{
	const struct fixture *f = arrival->f;
	for (int r = 0; r < f->table->count; r++) {
		const struct tensor *row = &f->table->rows[r];
		if (row->role == TENSOR_PARAMETER)
			memset(arrival->weights + row->offset, 0xff, row->count * sizeof *arrival->weights);
		else
			memcpy(arrival->weights + row->offset, f->weights + row->offset,
				row->count * sizeof *arrival->weights);
	}
	arrival->next = tensor_table_layers(model_tensors(f->model));
	model_bind(f->model, arrival->weights, arrival->weights);
}

static void check_gate(const struct model_config *config, bool plain)
{
	struct fixture f = fixture_open(config, plain, 3);
	struct batch batch = fixture_batch(&f, 3, 1);
	struct arrival arrival = { &f, fixture_arena(&f), 0 };
	float *late = fixture_arena(&f);
	double loss = loss_of(&f, &batch);
	train(&f, &batch, f.grads, 0);
	model_set_weights_wait(f.model, bring, &arrival);
	await_weights(&arrival);
	assert_true(loss == loss_of(&f, &batch));
	assert_int_equal(arrival.next, 0);
	await_weights(&arrival);
	train(&f, &batch, late, 0);
	assert_int_equal(arrival.next, 0);
	assert_memory_equal(late, f.grads, tensor_table_gradients(f.table) * sizeof *late);
	f.ops->device->release(f.ops->device, late);
	f.ops->device->release(f.ops->device, arrival.weights);
	fixture_free_batch(&batch);
	fixture_close(&f);
}

static void each_layer_is_asked_for_before_it_is_read(void **state)
{
	struct model_config split = fixture_gpt2;
	split.split_embedding = true;
	for (size_t i = 0; i < CASES; i++)
		check_gate(cases[i].config, cases[i].plain);
	check_gate(&split, true);
	check_gate(&fixture_normal_mlp, true);
}

struct patience {
	int left, told;
};

static bool is_lost(void *arg)
{
	struct patience *patience = arg;
	return patience->left-- <= 0;
}

static void count_ready(void *arg, int layer)
{
	struct patience *patience = arg;
	patience->told++;
}

/* How often a pass says what is ready, when it is abandoned at its question number `left`. */
static int told_until(struct fixture *f, const struct batch *batch, int left, float *grads)
{
	struct patience patience = { .left = left };
	double loss;
	int64_t valid;
	model_set_abandon(f->model, is_lost, &patience);
	model_train(f->model, batch, grads, 0, &loss, &valid, count_ready, &patience);
	return patience.told;
}

static void an_abandoned_pass_ends_before_its_next_block(void **state)
{
	struct fixture f = fixture_open(&fixture_gpt2, false, 3);
	struct batch batch = fixture_batch(&f, 3, 1);
	float *grads = fixture_arena(&f);
	int blocks = fixture_gpt2.layers, parts = 4; /* of a block */
	train(&f, &batch, f.grads, 0);
	for (int left = 0; left <= blocks; left++)
		assert_int_equal(told_until(&f, &batch, left, grads), 0);
	/* The end of the forward pass and the last norm come before the blocks, the embedding after. */
	for (int i = 0; i < blocks; i++)
		assert_int_equal(told_until(&f, &batch, blocks + 1 + i, grads), 2 + parts * i);
	assert_int_equal(told_until(&f, &batch, 2 * blocks + 1, grads), 3 + parts * blocks);
	assert_memory_equal(grads, f.grads, tensor_table_gradients(f.table) * sizeof *grads);
	f.ops->device->release(f.ops->device, grads);
	fixture_free_batch(&batch);
	fixture_close(&f);
}

/* The samples [first, first + count) of a batch; arrays are the batch's. */
static struct batch part_of(const struct batch *batch, int first, int count)
{
	struct batch part = *batch;
	part.samples = count;
	part.targets += first * batch->positions;
	if (part.tokens)
		part.tokens += first * batch->positions;
	if (part.inputs)
		part.inputs += first * batch->features;
	return part;
}

static void split_batch_gives_the_same_sum(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 5);
		struct batch whole = fixture_batch(&f, 5, 1);
		struct batch head = part_of(&whole, 0, 2), tail = part_of(&whole, 2, 3);
		float *parts = fixture_arena(&f);
		double loss, sums[2] = { 0 }, validation = loss_of(&f, &whole);
		int64_t valid, counts[2];
		model_train(f.model, &whole, f.grads, 0, &loss, &valid, NULL, NULL);
		model_train(f.model, &head, parts, 0, &sums[0], &counts[0], NULL, NULL);
		model_train(f.model, &tail, parts, 1, &sums[1], &counts[1], NULL, NULL);
		assert_int_equal(valid, counts[0] + counts[1]);
		assert_true(valid > 0 && valid <= 5 * whole.positions);
		assert_true(fabs(loss - sums[0] - sums[1]) < 1e-6 * loss);
		assert_true(fabs(loss - validation) < 1e-6 * loss);
		for (int r = 0; r < f.table->count; r++)
			assert_true(fixture_distance(&f.table->rows[r], parts, f.grads) < 2e-6);
		f.ops->device->release(f.ops->device, parts);
		fixture_free_batch(&whole);
		fixture_close(&f);
	}
}

/* A sample that does not exist (targets -1) counts nowhere, whatever its tokens. */
static void missing_samples_count_nothing(void **state)
{
	for (size_t i = 0; i < CASES; i++) {
		struct fixture f = fixture_open(cases[i].config, cases[i].plain, 4);
		struct batch whole = fixture_batch(&f, 4, 1), present = part_of(&whole, 0, 3);
		float *without = fixture_arena(&f);
		double loss, expected;
		int64_t valid, count;
		model_train(f.model, &present, without, 0, &expected, &count, NULL, NULL);
		for (int k = 3 * whole.positions; k < 4 * whole.positions; k++)
			whole.targets[k] = -1;
		model_train(f.model, &whole, f.grads, 0, &loss, &valid, NULL, NULL);
		assert_int_equal(valid, count);
		assert_true(fabs(loss - expected) < 1e-6 * expected);
		for (int r = 0; r < f.table->count; r++)
			assert_true(fixture_distance(&f.table->rows[r], f.grads, without) < 2e-6);
		f.ops->device->release(f.ops->device, without);
		fixture_free_batch(&whole);
		fixture_close(&f);
	}
}

static void short_samples_and_padding_leave_zeros(void **state)
{
	struct fixture f = fixture_open(&fixture_gpt2, false, 3);
	struct batch batch = fixture_batch(&f, 3, 1);
	const struct tensor *wte = tensor_table_find(f.table, "transformer.wte.weight");
	const struct tensor *wpe = tensor_table_find(f.table, "transformer.wpe.weight");
	batch.positions = 4; /* of a context of 7 */
	train(&f, &batch, f.grads, 0);
	train(&f, &batch, f.grads, 1);
	assert_true(wte->padded[0] > wte->shape[0]);
	for (int64_t k = (int64_t)wte->count; k < wte->padded[0] * wte->padded[1]; k++)
		assert_true(f.grads[wte->offset + (size_t)k] == 0.0f);
	for (int64_t k = 0; k < wpe->shape[0] * wpe->shape[1]; k++)
		assert_int_equal(f.grads[wpe->offset + (size_t)k] != 0.0f, k < 4 * wpe->shape[1]);
	fixture_free_batch(&batch);
	fixture_close(&f);
}

static void wrong_configurations_name_the_flag(void **state)
{
	static const struct {
		struct model_config config;
		const char *flag;
	} wrong[] = {
		{ { .kind = MODEL_GPT2,
			  .layers = 0,
			  .width = 8,
			  .heads = 2,
			  .context = 4,
			  .vocabulary = 9 },
			"--layers 0" },
		{ { .kind = MODEL_GPT2,
			  .layers = 1,
			  .width = -8,
			  .heads = 2,
			  .context = 4,
			  .vocabulary = 9 },
			"--width -8" },
		{ { .kind = MODEL_GPT2,
			  .layers = 1,
			  .width = 8,
			  .heads = 3,
			  .context = 4,
			  .vocabulary = 9 },
			"--heads 3" },
		{ { .kind = MODEL_GPT2,
			  .layers = 1,
			  .width = 8,
			  .heads = 2,
			  .context = 0,
			  .vocabulary = 9 },
			"--context 0" },
		{ { .kind = MODEL_GPT2, .layers = 1, .width = 8, .heads = 2, .context = 4 },
			"--vocabulary 0" },
		{ { .kind = MODEL_MLP, .inputs = 0, .hidden = 4, .classes = 2 }, "--inputs 0" },
		{ { .kind = MODEL_MLP, .inputs = 3, .hidden = 0, .classes = 2 }, "--hidden 0" },
		{ { .kind = MODEL_MLP, .inputs = 3, .hidden = 4, .classes = 0 }, "--classes 0" },
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct err err = { 0 };
		assert_null(model_create(&wrong[i].config, &err));
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, wrong[i].flag));
	}
}

static void microbatch_beyond_memory_is_an_error(void **state)
{
	struct err err = { 0 };
	const struct model_config wide = { .kind = MODEL_GPT2,
		.layers = 2,
		.width = 1,
		.heads = 1,
		.context = 1 << 24,
		.vocabulary = 2 };
	struct model *model = model_create(&wide, &err);
	struct ops *ops = ops_cpu_create(true, &err);
	assert_non_null(model);
	assert_int_equal(model_prepare(model, ops, 128, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_int_equal(model_prepare(model, ops, 0, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	model_destroy(model);
	ops->destroy(ops);
}

/* GPT-2 small as published: 124,439,808 parameters. */
static void table_is_that_of_gpt2(void **state)
{
	struct err err;
	const struct model_config small = { .kind = MODEL_GPT2,
		.layers = 12,
		.width = 768,
		.heads = 12,
		.context = 1024,
		.vocabulary = 50257 };
	struct model *model = model_create(&small, &err);
	const struct tensor_table *table = model_tensors(model);
	assert_int_equal(table->parameters, 124439808);
	assert_int_equal(table->count, 12 * 12 + 4);
	assert_int_equal(tensor_table_layers(model_tensors(model)), 2 + 12 * 4);
	assert_string_equal(table->rows[0].name, "transformer.ln_f.weight");
	assert_string_equal(table->rows[2].name, "transformer.h.11.mlp.c_proj.weight");
	assert_string_equal(table->rows[table->count - 1].name, "transformer.wpe.weight");
	for (int r = 0; r < table->count; r++)
		assert_int_equal(table->rows[r].decay, table->rows[r].dims == 2);
	const struct tensor *proj = tensor_table_find(table, "transformer.h.0.attn.c_proj.weight");
	const struct tensor *fc = tensor_table_find(table, "transformer.h.0.mlp.c_fc.weight");
	assert_true(
		fabs(proj->init_std - 0.02 / sqrt(24)) < 1e-9 && fabsf(fc->init_std - 0.02f) < 1e-9f);
	assert_true(fc->shape[0] == 768 && fc->shape[1] == 3072);
	assert_int_equal(tensor_table_find(table, "transformer.wte.weight")->padded[0], 50304);
	/* 6 · 124,439,808 + 6 · 12 · 768 · 1,024 = 746,638,848 + 56,623,104 a token */
	assert_true(model_flops(model) == 803261952.0 * 1024);
	model_destroy(model);
}

static void config_json_is_hugging_faces(void **state)
{
	struct err err;
	struct model *model = model_create(&fixture_gpt2, &err);
	char *text = model_config_json(model);
	json_t *json = json_loads(text, 0, NULL);
	assert_non_null(json);
	assert_string_equal(json_string_value(json_object_get(json, "model_type")), "gpt2");
	assert_string_equal(json_string_value(json_object_get(json, "activation_function")),
		"gelu_new");
	assert_int_equal(json_integer_value(json_object_get(json, "n_layer")), 2);
	assert_int_equal(json_integer_value(json_object_get(json, "n_embd")), 12);
	assert_int_equal(json_integer_value(json_object_get(json, "n_head")), 3);
	assert_int_equal(json_integer_value(json_object_get(json, "n_positions")), 7);
	assert_int_equal(json_integer_value(json_object_get(json, "vocab_size")), 19);
	assert_true(json_real_value(json_object_get(json, "layer_norm_epsilon")) == 1e-5);
	assert_true(json_is_true(json_object_get(json, "tie_word_embeddings")));
	json_decref(json);
	free(text);
	model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_match_differences),
		cmocka_unit_test(gradients_scale_with_loss_scale),
		cmocka_unit_test(accumulate_adds_and_its_absence_overwrites),
		cmocka_unit_test(a_split_embedding_adds_up),
		cmocka_unit_test(ready_comes_in_order_and_only_when_final),
		cmocka_unit_test(each_layer_is_asked_for_before_it_is_read),
		cmocka_unit_test(an_abandoned_pass_ends_before_its_next_block),
		cmocka_unit_test(split_batch_gives_the_same_sum),
		cmocka_unit_test(missing_samples_count_nothing),
		cmocka_unit_test(short_samples_and_padding_leave_zeros),
		cmocka_unit_test(wrong_configurations_name_the_flag),
		cmocka_unit_test(microbatch_beyond_memory_is_an_error),
		cmocka_unit_test(table_is_that_of_gpt2),
		cmocka_unit_test(config_json_is_hugging_faces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
