/* SPDX-License-Identifier: Apache-2.0 */
/* A step as a whole over the GPU's table of operations, on the host: how often the host waits for
 * the device, what is allocated, how much is launched, and the reduction over ranks. Nothing here
 * says anything of a GPU. */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/shim/grid.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_work.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/state.h"

#define BATCH 2

static const struct gpu gpu = { .name = "Fake", .capability = 90, .processors = 132 };
static const struct model_config deep_gpt2 = { .kind = MODEL_GPT2,
	.layers = 5,
	.width = 16,
	.heads = 2,
	.context = 9,
	.vocabulary = 40 };
static const struct optimizer_config schedule = { .learning_rate = 0.001,
	.minimal_learning_rate = 0.001,
	.steps = 10,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 0.5 };

static int set_up(void **state)
{
	fake_cublas = (struct fake_cublas) { 0 };
	fake_runtime = (struct fake_runtime) { 0 };
	fake_stream_order(FAKE_EAGER, 0);
	return 0;
}

/* Whatever was made is given back. */
static int tear_down(void **state)
{
	assert_int_equal(fake_cublas.objects, 0);
	assert_int_equal(fake_runtime.used, 0);
	assert_int_equal(fake_runtime.streams, 0);
	assert_int_equal(fake_runtime.events, 0);
	assert_int_equal(fake_runtime.graphs, 0);
	return 0;
}

static struct ops *ops_of(enum gemm_mode mode)
{
	struct err err = { 0 };
	return ops_cuda_create_over(&fake_cublas_library, &gpu, mode, &err);
}

/* What a training has: of one rank, whose communicator is this process's own. */
struct training {
	const struct model_config *config;
	int slots, microbatches, zero;
	bool graphs;
	struct ops *ops;
	struct comm *comm;
	struct model *model;
	struct ddp *ddp;
	struct state state;
	double loss, norm;
	uint64_t update; /* launches of the last update */
};

static void begin(struct training *t, struct ops *ops)
{
	const struct ident ident = { .world_size = 1,
		.local_world_size = 1,
		.node_count = 1,
		.node = "here",
		.source = "single" };
	const struct ddp_config config = { .slots = t->slots, .bucket_bytes = 4096, .zero = t->zero };
	struct err err = { 0 };
	size_t count;
	t->ops = ops;
	t->comm = comm_open(&ident, NULL, NULL, 30, &err);
	t->model = model_create(t->config, &err);
	if (model_prepare(t->model, ops, BATCH, &err) < 0)
		fail_msg("%s", err.text);
	t->ddp = ddp_create(t->comm, ops, model_tensors(t->model), &config, &err);
	assert_non_null(t->ddp);
	const struct zero_shard *own = ddp_own(t->ddp, &count);
	assert_int_equal(state_alloc(&t->state, ops, model_tensors(t->model), own, count, &err), 0);
	state_init(&t->state, 3);
	assert_int_equal(state_upload(&t->state, &err), 0);
	model_bind(t->model, state_compute(&t->state), state_compute(&t->state));
	model_use_graphs(t->model, t->graphs);
}

static void end(struct training *t)
{
	ddp_destroy(t->ddp);
	state_free(&t->state);
	model_destroy(t->model);
	comm_close(t->comm);
	t->ops->destroy(t->ops);
}

static void train_slot(struct training *t, uint64_t step, int slot)
{
	const struct fixture f = { .model = t->model, .table = model_tensors(t->model) };
	int64_t valid = 0, counted;
	for (int i = 0; i < t->microbatches; i++) {
		struct batch batch =
			fixture_batch(&f, BATCH, step * 100 + (uint64_t)(slot * t->microbatches + i));
		model_train(t->model, &batch, ddp_slot_grads(t->ddp, slot), i > 0,
			ddp_slot_loss(t->ddp, slot), &counted, i == t->microbatches - 1 ? ddp_ready : NULL,
			t->ddp);
		valid += counted;
		fixture_free_batch(&batch); /* nobody may read it any more */
	}
	ddp_slot_end(t->ddp, valid);
}

static void train_step(struct training *t, uint64_t step)
{
	const struct ddp_control control = { .step = step };
	struct ddp_result result;
	struct err err = { 0 };
	optimizer_begin(&schedule, step, t->slots * t->microbatches * BATCH, t->ops->params);
	ops_put_params(t->ops);
	ddp_begin(t->ddp, step);
	for (int slot = 0; slot < t->slots; slot++)
		train_slot(t, step, slot);
	if (ddp_finish(t->ddp, &control, &result, &err) < 0)
		fail_msg("%s", err.text);
	bool changes = optimizer_clip(&schedule, result.loss, result.norm, t->ops->params);
	ops_put_params(t->ops);
	uint64_t launched = grid_launches();
	state_update(&t->state, ddp_grads(t->ddp), changes);
	t->update = grid_launches() - launched;
	model_bind(t->model, state_compute(&t->state), state_compute(&t->state));
	t->loss = result.loss;
	t->norm = result.norm;
	if (device_check(t->ops->device, &err) < 0)
		fail_msg("%s", err.text);
}

/* Whatever a step is made of, and like the CPU's. */
static void check_waits(const struct model_config *config, int slots, int microbatches, int zero)
{
	struct training device = { .config = config,
		.slots = slots,
		.microbatches = microbatches,
		.zero = zero },
					host = device;
	struct err err = { 0 };
	begin(&device, ops_of(GEMM_MODE_FP32));
	begin(&host, ops_cpu_create(true, &err));
	for (uint64_t step = 1; step <= 3; step++) {
		int waits = fake_runtime.waits, allocations = fake_runtime.allocations;
		train_step(&device, step);
		train_step(&host, step);
		assert_int_equal(fake_runtime.waits - waits, 1);
		assert_int_equal(fake_runtime.allocations, allocations);
		assert_int_equal(device.update, 1);
		assert_true(device.loss > 0 && fabs(device.loss / host.loss - 1) < 1e-4);
		assert_true(device.norm > 0 && fabs(device.norm / host.norm - 1) < 1e-3);
	}
	end(&device);
	end(&host);
}

static void a_step_waits_once(void **state)
{
	check_waits(&fixture_gpt2, 1, 1, 0);
	check_waits(&fixture_gpt2, 3, 4, 0);
	check_waits(&deep_gpt2, 2, 2, 0);
	check_waits(&fixture_gpt2, 2, 2, 1);
	check_waits(&fixture_mlp, 1, 1, 0);
	check_waits(&fixture_mlp, 3, 12,
		1); /* more batches than there are places for those on their way */
}

/* ---- graphs ---- */

#define GRAPH_STEPS 3

/* What is to be the same with graphs and without. */
struct outcome {
	double losses[GRAPH_STEPS], norms[GRAPH_STEPS];
	size_t elements;
	float *weights;
};

typedef void fault_planter(struct ops *ops);

static struct outcome train(struct training t, bool graphs, fault_planter *plant)
{
	struct outcome outcome = { { 0 }, { 0 }, 0, NULL };
	t.graphs = graphs;
	begin(&t, ops_of(GEMM_MODE_BF16));
	if (plant)
		plant(t.ops);
	for (uint64_t step = 1; step <= GRAPH_STEPS; step++) {
		int waits = fake_runtime.waits;
		train_step(&t, step);
		assert_int_equal(fake_runtime.waits - waits, 1);
		outcome.losses[step - 1] = t.loss;
		outcome.norms[step - 1] = t.norm;
	}
	outcome.elements = t.state.tensors->elements;
	outcome.weights = malloc(outcome.elements * sizeof(float));
	t.ops->device->copy_out(t.ops->device, outcome.weights, state_master(&t.state),
		outcome.elements * sizeof(float));
	end(&t);
	return outcome;
}

static bool same_outcome(struct training t, fault_planter *plant)
{
	struct outcome eager = train(t, false, plant), graphs = train(t, true, plant);
	bool same = memcmp(eager.losses, graphs.losses, sizeof eager.losses) == 0
		&& memcmp(eager.norms, graphs.norms, sizeof eager.norms) == 0
		&& memcmp(eager.weights, graphs.weights, eager.elements * sizeof(float)) == 0;
	assert_true(eager.losses[0] > 0 && eager.losses[0] != eager.losses[1]);
	free(eager.weights);
	free(graphs.weights);
	return same;
}

static void check_graphs(const struct model_config *config, int slots, int microbatches)
{
	const struct training t = { .config = config, .slots = slots, .microbatches = microbatches };
	fake_runtime.replays = 0;
	assert_true(same_outcome(t, NULL));
	assert_int_equal(fake_runtime.replays, GRAPH_STEPS * slots * microbatches);
}

static void graphs_have_the_same_bits(void **state)
{
	static const enum fake_order orders[] = { FAKE_EAGER, FAKE_LAZY, FAKE_RANDOM };
	struct model_config split = deep_gpt2;
	split.split_embedding = true;
	for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
		fake_stream_order(orders[i], i);
		check_graphs(&fixture_gpt2, 3, 2);
		check_graphs(&fixture_mlp, 2, 3);
	}
	check_graphs(&split, 1, 1);
}

/* What must not be in a graph, planted: the number of a call, passed by value … */
static struct ops right;
static int calls;

static void by_value(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	right.embedding(ops, out, tokens, wte,
		(const float *)(const void *)((const char *)wpe + calls++ % 3 * 64), B, T, C);
}

/* … and work of the host, whose copy is of what was there when the graph was captured. */
static void on_the_host(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	int32_t other = calls++ % 7;
	ops->device->put(ops->device, (void *)(uintptr_t)tokens, &other, sizeof other);
	right.embedding(ops, out, tokens, wte, wpe, B, T, C);
}

static void plant_by_value(struct ops *ops)
{
	right = *ops;
	calls = 0;
	ops->embedding = by_value;
}

static void plant_on_the_host(struct ops *ops)
{
	plant_by_value(ops);
	ops->embedding = on_the_host;
}

/* What can't be captured at all: a wait. */
static void waiting(struct ops *ops, float *out, const int32_t *tokens, const float *wte,
	const float *wpe, int B, int T, int C)
{
	float unused;
	if (calls++ % 3 == 2)
		ops->device->copy_out(ops->device, &unused, wte, sizeof unused);
	right.embedding(ops, out, tokens, wte, wpe, B, T, C);
}

static void what_cannot_be_captured_runs_one_by_one(void **state)
{
	struct training t = { .config = &fixture_gpt2, .slots = 1, .microbatches = 1, .graphs = true };
	struct err err = { 0 };
	begin(&t, ops_of(GEMM_MODE_FP32));
	right = *t.ops;
	calls = 2;
	t.ops->embedding = waiting;
	train_step(&t, 1);
	double loss = t.loss;
	model_use_graphs(t.model, true); /* it stays with that */
	train_step(&t, 2);
	assert_int_equal(fake_runtime.replays, 0);
	assert_int_equal(fake_runtime.graphs, 0);
	assert_true(loss > 0 && t.loss > 0 && loss != t.loss);
	assert_int_equal(device_check(t.ops->device, &err), 0);
	end(&t);
}

static void what_a_graph_must_not_hold_is_seen(void **state)
{
	const struct training t = { .config = &fixture_gpt2, .slots = 1, .microbatches = 2 };
	assert_false(same_outcome(t, plant_by_value));
	fake_stream_order(FAKE_LAZY, 0);
	assert_false(same_outcome(t, plant_on_the_host));
}

/* A lane that copies the gradients of each layer as soon as the pass tells that they are ready. */
struct follower {
	struct training *t;
	float *grads, *copy;
	uint64_t event;
	int layer, told;
};

static void *follow(void *arg)
{
	struct follower *f = arg;
	const struct tensor_table *table = model_tensors(f->t->model);
	struct ops *ops = f->t->ops;
	struct err err;
	ops->device->wait_event(ops->device, f->event);
	for (int i = 0; i < table->count; i++)
		if (table->rows[i].layer == f->layer)
			ops->tree_reduce(ops, f->copy + table->rows[i].offset,
				(float *const[]) { f->grads + table->rows[i].offset }, (const int[]) { 0 }, 1,
				table->rows[i].count);
	while (ops->device->comm_stream_idle(ops->device, &err) == 0)
		;
	return NULL;
}

static void copy_ready(void *arg, int layer)
{
	struct follower *f = arg;
	pthread_t thread;
	f->layer = layer;
	f->told++;
	f->event = f->t->ops->device->record_event(f->t->ops->device);
	assert_int_equal(pthread_create(&thread, NULL, follow, f), 0);
	pthread_join(thread, NULL);
}

/* Whether the copies are what the passes left; of the second pass, so that the first one's are
 * there already. */
static bool follows(bool graphs)
{
	struct training t = { .config = &fixture_gpt2,
		.slots = 1,
		.microbatches = 1,
		.graphs = graphs };
	struct err err = { 0 };
	int64_t valid;
	begin(&t, ops_of(GEMM_MODE_FP32));
	const struct tensor_table *table = model_tensors(t.model);
	const struct fixture fixture = { .model = t.model, .table = table };
	size_t bytes = table->elements * sizeof(float);
	struct follower f = { &t, ddp_slot_grads(t.ddp, 0), t.ops->device->alloc(t.ops->device, bytes),
		0, 0, 0 };
	assert_non_null(t.ops->device->comm_stream(t.ops->device, &err));
	optimizer_begin(&schedule, 1, BATCH, t.ops->params);
	ops_put_params(t.ops);
	for (uint64_t i = 0; i < 2; i++) {
		struct batch batch = fixture_batch(&fixture, BATCH, i);
		model_train(t.model, &batch, f.grads, 0, ddp_slot_loss(t.ddp, 0), &valid, copy_ready, &f);
		fixture_free_batch(&batch);
	}
	float *grads = malloc(bytes), *copy = malloc(bytes);
	t.ops->device->copy_out(t.ops->device, grads, f.grads, bytes);
	t.ops->device->copy_out(t.ops->device, copy, f.copy, bytes);
	bool same = true;
	for (int i = 0; i < table->count; i++)
		same = same
			&& memcmp(grads + table->rows[i].offset, copy + table->rows[i].offset,
				   table->rows[i].count * sizeof(float))
				== 0;
	assert_int_equal(f.told, 2 * (tensor_table_layers(model_tensors(t.model)) + 1));
	assert_int_equal(device_check(t.ops->device, &err), 0);
	free(grads);
	free(copy);
	t.ops->device->release(t.ops->device, f.copy);
	end(&t);
	return same;
}

static void lanes_wait_for_places_in_graphs(void **state)
{
	fake_stream_order(FAKE_LAZY, 0);
	for (int graphs = 0; graphs < 2; graphs++) {
		fake_runtime.deaf = false;
		assert_true(follows(graphs));
		fake_runtime.deaf = true;
		assert_false(follows(graphs));
	}
	fake_runtime.deaf = false;
}

/* ---- several ranks ---- */

static int reduce(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work job = *(const struct ddp_work *)arg;
	job.ops = ops_of(GEMM_MODE_FP32);
	struct ddp *ddp = ddp_work_create(comm, &job, err);
	if (!ddp)
		return -1;
	if (comm_size(comm) == job.slots)
		job.ops->add = NULL; /* all additions are made at once */
	for (uint64_t step = 0; step < STEPS; step++) {
		struct ddp_result result;
		if (ddp_work_run_step(ddp, &job, step, ddp_work_control(comm, step), &result, err) < 0
			|| device_check(job.ops->device, err) < 0)
			return -1;
		WORLD_CHECK(
			memcmp(ddp_grads(ddp), job.grads[step], job.table.elements * sizeof(float)) == 0);
		WORLD_CHECK(result.norm == job.norm[step] && result.nonfinite == -1);
	}
	ddp_destroy(ddp);
	job.ops->destroy(job.ops);
	return 0;
}

static void sums_have_the_bits_of_the_cpu(void **state)
{
	static const struct {
		int slots, world;
	} cases[] = { { 3, 1 }, { 4, 4 }, { 7, 3 } };
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		ddp_work_make(&job, cases[i].slots, 300000, 0);
		world_run(cases[i].world, 30, reduce, &job, ranks);
		world_assert_ok(cases[i].world, ranks);
		ddp_work_free(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_step_waits_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(graphs_have_the_same_bits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_a_graph_must_not_hold_is_seen, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_cannot_be_captured_runs_one_by_one, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lanes_wait_for_places_in_graphs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sums_have_the_bits_of_the_cpu, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
