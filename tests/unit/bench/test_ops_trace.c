/* SPDX-License-Identifier: Apache-2.0 */
/* The trace of a step that bench/step_floor makes on a GPU, here over the CPU's operations: nothing
 * computes otherwise through it, and what it notes is what a step needs by sums made by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bench/ops_trace.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/state.h"

enum { LAYERS = 2, C = 16, HEADS = 2, T = 8, V = 256, BATCH = 3, M = BATCH * T, MICROBATCHES = 2 };

static const struct model_config config = { .kind = MODEL_GPT2,
	.layers = LAYERS,
	.width = C,
	.heads = HEADS,
	.context = T,
	.vocabulary = V };
static const struct optimizer_config schedule = { .learning_rate = 0.01,
	.minimal_learning_rate = 0.01,
	.steps = 10,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 1 };

/* Each moment is one later than the one before, and the device is ready when it is asked. */
static size_t records;

static void record(void *arg, size_t moment)
{
	assert_int_equal(moment, records++);
}

static double seconds(void *arg, size_t from, size_t to)
{
	assert_int_equal(to, from + 1);
	return 0.25;
}

static const struct trace_clock ticks = { NULL, record, seconds };

/* A step; returns its loss, and the weights after it. */
static double step(struct ops *ops, float *weights)
{
	struct err err = { 0 };
	struct model *model = model_create(&config, &err);
	struct state state;
	double loss;
	int64_t valid;
	assert_int_equal(model_prepare(model, ops, BATCH, &err), 0);
	const struct tensor_table *table = model_tensors(model);
	assert_int_equal(state_alloc(&state, ops, table, NULL, 0, &err), 0);
	state_init(&state, 3);
	float *grads = ops->device->alloc(ops->device, table->elements * sizeof *grads);
	const struct fixture f = { .model = model, .table = table };
	optimizer_begin(&schedule, 1, M * MICROBATCHES, ops->params);
	model_bind(model, state.weights, state.weights);
	for (int i = 0; i < MICROBATCHES; i++) {
		struct batch batch = fixture_batch(&f, BATCH, (uint64_t)i);
		model_train(model, &batch, grads, i, &loss, &valid, NULL, NULL);
		fixture_free_batch(&batch);
	}
	double squares[V * C / NORM_BLOCK + 2];
	ops->square_sums(ops, squares, grads, table->rows[0].count);
	state_update(&state, grads, true);
	memcpy(weights, state.weights, table->elements * sizeof *weights);
	ops->device->release(ops->device, grads);
	state_free(&state);
	model_destroy(model);
	return loss;
}

struct traced {
	struct ops *ops;
	struct ops_trace *trace;
};

static int set_up(void **state)
{
	static struct traced t;
	struct err err;
	t.ops = ops_cpu_create(true, &err);
	t.trace = ops_trace_create(t.ops, &ticks, &err);
	records = 0;
	*state = &t;
	return t.ops && t.trace ? 0 : -1;
}

static int tear_down(void **state)
{
	struct traced *t = *state;
	ops_trace_destroy(t->trace);
	t->ops->destroy(t->ops);
	return 0;
}

static size_t elements(void)
{
	struct err err;
	struct model *model = model_create(&config, &err);
	size_t count = model_tensors(model)->elements;
	model_destroy(model);
	return count;
}

static void nothing_is_computed_otherwise(void **state)
{
	struct traced *t = *state;
	size_t bytes = elements() * sizeof(float);
	float *plain = malloc(bytes), *traced = malloc(bytes);
	double loss = step(t->ops, plain);
	assert_true(step(ops_trace_table(t->trace), traced) == loss);
	assert_memory_equal(plain, traced, bytes);
	assert_true(records > 0);
	free(plain);
	free(traced);
}

static const struct trace_row *row_named(const struct traced *t, const char *name)
{
	size_t count;
	const struct trace_row *rows = ops_trace_rows(t->trace, &count);
	for (size_t i = 0; i < count; i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	fail_msg("no %s", name);
	return NULL;
}

static void assert_row(const struct traced *t, const char *name, size_t calls, double bytes,
	double step_bytes, double flops)
{
	const struct trace_row *row = row_named(t, name);
	if (row->calls != calls || row->bytes != bytes || row->step_bytes != step_bytes
		|| row->flops != flops)
		fail_msg("%s: %zu calls, %g and %g bytes, %g operations", name, row->calls, row->bytes,
			row->step_bytes, row->flops);
	assert_true(row->seconds == 0.25 * (double)calls);
}

static void trace_a_step(struct traced *t)
{
	struct err err = { 0 };
	float *weights = malloc(elements() * sizeof *weights);
	step(ops_trace_table(t->trace), weights);
	assert_int_equal(ops_trace_settle(t->trace, &err), 0);
	free(weights);
}

/* Of two microbatches of 24 rows of 16, 4 bytes each. */
static void passes_by_hand(void **state)
{
	const double row = M * C * 4,
				 parameters = 2 * C + LAYERS * (12 * C * C + 13 * C) + V * C + T * C;
	const double pairs = BATCH * C * T * (T + 1);
	trace_a_step(*state);
	assert_row(*state, "embedding", 2, 2 * (row + T * C * 4 + M * 4), 2 * (row + T * C * 4 + M * 4),
		0);
	assert_row(*state, "layernorm", 2, 2 * (2 * row + 8 * M), 2 * (2 * row + 8 * M), 0);
	assert_row(*state, "layernorm with residual", 8, 8 * (4 * row + 8 * M), 8 * (4 * row + 8 * M),
		0);
	assert_row(*state, "layernorm backward", 2, 2 * (3 * row + 8 * M), 2 * (3 * row + 8 * M), 0);
	assert_row(*state, "layernorm backward, added", 8, 8 * (4 * row + 8 * M), 8 * (4 * row + 8 * M),
		0);
	assert_row(*state, "attention", 4, 4 * (4 * row + 4 * M * HEADS), 4 * (4 * row + 4 * M * HEADS),
		4 * 2 * pairs);
	assert_row(*state, "attention backward", 4, 4 * (8 * row + 4 * M * HEADS),
		4 * (8 * row + 4 * M * HEADS), 4 * 5 * pairs);
	assert_row(*state, "head and loss", 2, 2 * (2 * M * V * 4 + 8 * M), 2 * (2 * M * V * 4 + 8 * M),
		0);
	assert_row(*state, "gradient of weights 16 to 64", 4, 4 * M * 64 * 4, 0, 0);
	assert_row(*state, "gradient norm", 1, 4 * C, 4 * C, 0);
	assert_row(*state, "adamw", 4 + LAYERS * 12, 28 * parameters, 28 * parameters, 0);
}

/* All products that the model has, each as often that they make up the operations of a step: 6 for
 * each weight and row. */
static void gemm_plans_are_the_models(void **state)
{
	const struct traced *t = *state;
	const struct ops_shapes shapes = { BATCH, T, C, HEADS, V, 4 * C };
	struct gemm list[64];
	size_t all = gemm_plans_of(&shapes, GEMM_MODE_FP32, list, 64), count;
	double flops = 0;
	bool found[64] = { false };
	char text[160];
	trace_a_step(*state);
	const struct trace_gemm *noted = ops_trace_gemms(t->trace, &count);
	for (size_t i = 0; i < count; i++) {
		const struct gemm *p = &noted[i].gemm;
		size_t k = 0;
		while (k < all && !gemm_equal(&list[k], p))
			k++;
		if (k == all)
			fail_msg("%s is none of the model's", gemm_text(p, text, sizeof text));
		found[k] = true;
		flops += 2.0 * p->rows * p->columns * p->depth * (double)noted[i].count;
	}
	for (size_t k = 0; k < all; k++)
		if (!found[k] && list[k].epilogue != GEMM_BIAS_GRAD) /* another way to make one that was */
			fail_msg("%s was not noted", gemm_text(&list[k], text, sizeof text));
	assert_true(flops == MICROBATCHES * 6.0 * M * (LAYERS * 12 * C * C + V * C));
}

static void a_new_step_begins_with_nothing(void **state)
{
	struct traced *t = *state;
	size_t rows, plans;
	trace_a_step(t);
	ops_trace_clear(t->trace);
	ops_trace_rows(t->trace, &rows);
	ops_trace_gemms(t->trace, &plans);
	assert_int_equal(rows + plans, 0);
	records = 0;
	passes_by_hand(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(nothing_is_computed_otherwise),
		TEST(passes_by_hand),
		TEST(gemm_plans_are_the_models),
		TEST(a_new_step_begins_with_nothing),
#undef TEST
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
