/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer: the schedule is the documented function of the step, clipping and masking, AdamW over
 * the whole table. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/trainer/model/model_fixture.h"
#include "trainer/state/optimizer.h"

static const struct optimizer_config example = { .learning_rate = 1e-3,
	.minimal_learning_rate = 1e-4,
	.warmup = 10,
	.steps = 110,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 1.0 };

static bool close_to(double a, double b)
{
	return fabs(a - b) <= 1e-12 + 1e-9 * fabs(b);
}

static void schedule_rises_then_falls(void **state)
{
	assert_true(close_to(optimizer_learning_rate(&example, 1), 1e-4));
	assert_true(close_to(optimizer_learning_rate(&example, 10), 1e-3));
	assert_true(close_to(optimizer_learning_rate(&example, 11), 1e-3));
	assert_true(close_to(optimizer_learning_rate(&example, 61), 5.5e-4)); /* half of the decay */
	assert_true(close_to(optimizer_learning_rate(&example, 36),
		1e-4 + 9e-4 * (1 + sqrt(0.5)) / 2)); /* a quarter */
	assert_true(close_to(optimizer_learning_rate(&example, 111), 1e-4));
	assert_true(close_to(optimizer_learning_rate(&example, UINT64_MAX), 1e-4));
	for (uint64_t step = 2; step <= 120; step++) {
		double before = optimizer_learning_rate(&example, step - 1),
			   now = optimizer_learning_rate(&example, step);
		assert_true(step <= 10 ? now > before : now <= before);
		assert_true(now >= 1e-4 && now <= 1e-3);
	}
}

static void schedule_without_warmup_or_decay(void **state)
{
	struct optimizer_config c = example;
	c.warmup = 0;
	assert_true(close_to(optimizer_learning_rate(&c, 1), 1e-3));
	c.minimal_learning_rate = c.learning_rate;
	for (uint64_t step = 1; step < 200; step++)
		assert_true(close_to(optimizer_learning_rate(&c, step), 1e-3));
	c.warmup = c.steps = 5;
	assert_true(close_to(optimizer_learning_rate(&c, 5), 1e-3));
	assert_true(close_to(optimizer_learning_rate(&c, 6), 1e-3));
}

static void begin_fills_in_the_step(void **state)
{
	struct step_params p;
	memset(&p, 0xff, sizeof p);
	optimizer_begin(&example, 3, 50, &p);
	assert_int_equal(p.step, 3);
	assert_true(close_to(p.learning_rate, (float)3e-4));
	assert_true(close_to(p.loss_scale, (float)0.02));
	assert_true(close_to(p.bias1, (float)(1 / (1 - 0.9 * 0.9 * 0.9))));
	assert_true(close_to(p.bias2, (float)(1 / (1 - 0.95 * 0.95 * 0.95))));
	assert_true(p.clip == 1.0f && !p.masked);
	optimizer_begin(&example, 3, 0, &p);
	assert_true(p.loss_scale == 0.0f);
}

static void clip_limits_the_norm(void **state)
{
	struct step_params p = { 0 };
	struct optimizer_config c = example;
	assert_true(optimizer_clip(&c, 2.0, 4.0, &p) && p.clip == 0.25f);
	assert_true(optimizer_clip(&c, 2.0, 0.5, &p) && p.clip == 1.0f);
	assert_true(optimizer_clip(&c, 2.0, 0.0, &p) && p.clip == 1.0f);
	c.clip = 0;
	assert_true(optimizer_clip(&c, 2.0, 4.0, &p) && p.clip == 1.0f && !p.masked);
	const double bad[][2] = { { NAN, 1 }, { 1, NAN }, { INFINITY, 1 }, { 1, INFINITY },
		{ -INFINITY, 1 } };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_true(!optimizer_clip(&example, bad[i][0], bad[i][1], &p) && p.masked);
	assert_true(optimizer_clip(&example, 1, 1, &p) && !p.masked);
}

/* Two steps against AdamW written out in double precision. */
static void update_is_adamw_with_decay_on_matrices(void **state)
{
	struct fixture f = fixture_open(&fixture_gpt2, true, 1);
	float *m = fixture_arena(&f), *v = fixture_arena(&f), *start = fixture_arena(&f);
	const struct adamw_state state_of = { f.weights, m, v };
	const struct zero_shard all = { 0, 0, f.table->elements };
	memcpy(start, f.weights, f.table->elements * sizeof *start);
	for (size_t k = 0; k < f.table->elements; k++)
		f.grads[k] = (float)(fixture_unit(5, 1, (uint32_t)k) - 0.5);
	for (uint64_t step = 1; step <= 2; step++) {
		optimizer_begin(&example, step, 1, f.ops->params);
		optimizer_clip(&example, 1.0, 2.0, f.ops->params);
		optimizer_update(f.ops, f.table, &all, 1, &state_of, &state_of, f.grads);
	}
	for (int r = 0; r < f.table->count; r++) {
		const struct tensor *row = &f.table->rows[r];
		for (size_t k = row->offset; k < row->offset + row->count; k++) {
			double g = 0.5 * f.grads[k], first = 0, second = 0, w = start[k];
			for (int step = 1; step <= 2; step++) {
				double rate = 1e-4 * step;
				first = 0.9 * first + 0.1 * g;
				second = 0.95 * second + 0.05 * g * g;
				w -= rate * (row->decay ? 0.1 : 0) * w
					+ rate * (first / (1 - pow(0.9, step)))
						/ (sqrt(second / (1 - pow(0.95, step))) + 1e-8);
			}
			assert_true(fabs(f.weights[k] - w) < 2e-7);
		}
	}
	for (size_t k = 0; k < f.table->elements; k++) /* padding stays as it was */
		assert_true(start[k] != 0.0f || f.weights[k] == 0.0f);
	f.ops->device->release(f.ops->device, m);
	f.ops->device->release(f.ops->device, v);
	f.ops->device->release(f.ops->device, start);
	fixture_close(&f);
}

static void masked_step_changes_nothing(void **state)
{
	struct fixture f = fixture_open(&fixture_mlp, false, 1);
	float *m = fixture_arena(&f), *v = fixture_arena(&f), *start = fixture_arena(&f);
	const struct adamw_state state_of = { f.weights, m, v };
	const struct zero_shard all = { 0, 0, f.table->elements };
	const size_t bytes = f.table->elements * sizeof *start;
	memcpy(start, f.weights, bytes);
	memset(f.grads, 0xff, bytes);
	optimizer_begin(&example, 1, 1, f.ops->params);
	assert_false(optimizer_clip(&example, 1.0, NAN, f.ops->params));
	optimizer_update(f.ops, f.table, &all, 1, &state_of, &state_of, f.grads);
	assert_memory_equal(f.weights, start, bytes);
	memset(start, 0, bytes);
	assert_memory_equal(m, start, bytes);
	assert_memory_equal(v, start, bytes);
	f.ops->device->release(f.ops->device, m);
	f.ops->device->release(f.ops->device, v);
	f.ops->device->release(f.ops->device, start);
	fixture_close(&f);
}

/* Whatever stands in the place of their gradients. */
static void statistics_go_along_unchanged(void **state)
{
	const struct model_config config = { .kind = MODEL_MLP,
		.inputs = 9,
		.hidden = 11,
		.classes = 5,
		.batchnorm = true };
	struct fixture f = fixture_open(&config, false, 2);
	float *from[3] = { f.weights, fixture_arena(&f), fixture_arena(&f) }, *to[3];
	const struct tensor *var = tensor_table_find(f.table, "1.running_var");
	const struct tensor *batches = tensor_table_find(f.table, "1.num_batches_tracked");
	const int64_t count = INT64_C(123456789012345);
	for (int i = 0; i < 3; i++)
		to[i] = fixture_arena(&f);
	for (size_t k = 0; k < f.table->elements; k++)
		f.grads[k] = 1;
	f.weights[var->offset + 3] = 0.625f;
	memcpy(f.weights + batches->offset, &count, sizeof count);
	optimizer_begin(&example, 1, 1, f.ops->params);
	const struct zero_shard all = { 0, 0, f.table->elements };
	const struct adamw_state old = { from[0], from[1], from[2] }, new = { to[0], to[1], to[2] };
	optimizer_update(f.ops, f.table, &all, 1, &new, &old, f.grads);
	optimizer_keep(f.table, &new, &old);
	for (int r = 0; r < f.table->count; r++) {
		const struct tensor *row = &f.table->rows[r];
		bool same =
			memcmp(to[0] + row->offset, f.weights + row->offset, row->count * sizeof(float)) == 0;
		assert_int_equal(same, row->role != TENSOR_PARAMETER);
	}
	for (int i = 0; i < 3; i++)
		f.ops->device->release(f.ops->device, to[i]);
	f.ops->device->release(f.ops->device, from[1]);
	f.ops->device->release(f.ops->device, from[2]);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(schedule_rises_then_falls),
		cmocka_unit_test(schedule_without_warmup_or_decay),
		cmocka_unit_test(begin_fills_in_the_step),
		cmocka_unit_test(clip_limits_the_norm),
		cmocka_unit_test(update_is_adamw_with_decay_on_matrices),
		cmocka_unit_test(masked_step_changes_nothing),
		cmocka_unit_test(statistics_go_along_unchanged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
