/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's table of operations as a whole, on the host: its own kernels by the shim, a runtime and
 * a cuBLASLt that do what their documentation says. Both models' passes and updates are held
 * against the CPU's plain ones. Nothing here says anything of a GPU. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include <cuda_runtime_api.h>

#include "common/bytes.h"
#include "tests/fakes/fake_attention.h"
#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "tests/unit/trainer/state/device_state.h"
#include "trainer/cuda/host/attention_cudnn.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/state.h"

#define BATCH 3
#define NORMAL_BATCH 24 /* few rows have next to no gradient below a normalisation */
#define STEPS 3
#define PINNED \
	(16 * sizeof(struct step_params) + 16 * ((size_t)256 << 10)) /* bytes that copies go through \
																  */
/* Seconds of tuning. */
#define NO_LIMIT 1e6
#define ALL_EPILOGUES (~(1u << FAKE_DEFAULT))

static const struct gpu gpu = { .name = "Fake", .capability = 90, .processors = 132 };
static const struct model_config wide_gpt2 = { .kind = MODEL_GPT2,
	.layers = 2,
	.width = 32,
	.heads = 2,
	.context = 9,
	.vocabulary = 150 };
static const struct optimizer_config schedule = { .learning_rate = 0.01,
	.minimal_learning_rate = 0.001,
	.steps = STEPS,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 0.5 };

static int set_up(void **state)
{
	fake_attention = (struct fake_attention) { 0 };
	fake_cublas = (struct fake_cublas) { 0 };
	fake_runtime = (struct fake_runtime) { 0 };
	fake_stream_order(FAKE_EAGER, 0);
	return 0;
}

/* Whatever was made is given back. */
static int tear_down(void **state)
{
	assert_int_equal(fake_attention.alive, 0);
	assert_int_equal(fake_cublas.objects, 0);
	assert_int_equal(fake_runtime.used, 0);
	assert_int_equal(fake_runtime.streams, 0);
	assert_int_equal(fake_runtime.events, 0);
	return 0;
}

static struct ops *ops_of(enum gemm_mode mode)
{
	struct err err = { 0 };
	struct ops *ops = ops_cuda_create_over(&fake_cublas_library, &gpu, mode, &err);
	assert_string_equal(err.text, "");
	return ops;
}

/* One training: the same samples and weights on either device. */
struct training {
	struct ops *ops;
	struct model *model;
	struct state state;
	int batch;
	float *grads, *host_grads; /* the second NULL where they are the same */
	double *loss;              /* where the ops have their memory */
	double losses[STEPS];
	int64_t valid[STEPS];
};

static void begin(struct training *t, struct ops *ops, const struct model_config *config)
{
	struct err err = { 0 };
	*t = (struct training) { .ops = ops,
		.model = model_create(config, &err),
		.batch = config->batchnorm ? NORMAL_BATCH : BATCH };
	if (model_prepare(t->model, ops, t->batch, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(state_alloc(&t->state, ops, model_tensors(t->model), NULL, 0, &err), 0);
	state_init(&t->state, 3);
	for (int i = 0; i < t->state.tensors->count; i++) {
		const struct tensor *row = &t->state.tensors->rows[i];
		for (size_t k = 0; row->role == TENSOR_PARAMETER && k < row->count; k++)
			t->state.weights[row->offset + k] *= 4; /* away from zero */
	}
	assert_int_equal(state_upload(&t->state, &err), 0);
	size_t bytes = tensor_table_gradients(t->state.tensors) * sizeof(float);
	t->grads = ops->device->alloc(ops->device, bytes);
	t->loss = ops->device->alloc(ops->device, sizeof *t->loss);
	t->host_grads = device_has_memory(ops->device) ? calloc(1, bytes) : NULL;
}

static void end(struct training *t)
{
	t->ops->device->release(t->ops->device, t->grads);
	t->ops->device->release(t->ops->device, t->loss);
	free(t->host_grads);
	state_free(&t->state);
	model_destroy(t->model);
	t->ops->destroy(t->ops);
}

static const float *grads_of(struct training *t)
{
	if (!t->host_grads)
		return t->grads;
	t->ops->device->copy_out(t->ops->device, t->host_grads, t->grads,
		tensor_table_gradients(t->state.tensors) * sizeof(float));
	return t->host_grads;
}

/* Two microbatches, so that everything is added to once. */
static void pass(struct training *t, uint64_t step)
{
	const struct fixture f = { .model = t->model, .table = model_tensors(t->model) };
	optimizer_begin(&schedule, step, 40, t->ops->params);
	ops_put_params(t->ops);
	model_bind(t->model, state_compute(&t->state), state_master(&t->state));
	for (int i = 0; i < 2; i++) {
		int64_t valid;
		struct batch batch = fixture_batch(&f, t->batch, step * 10 + (uint64_t)i);
		model_train(t->model, &batch, t->grads, i, t->loss, &valid, NULL, NULL);
		t->valid[step - 1] += valid;
		fixture_free_batch(&batch);
	}
	t->losses[step - 1] = *t->loss;
	if (device_has_memory(t->ops->device))
		t->ops->device->copy_out(t->ops->device, &t->losses[step - 1], t->loss, sizeof *t->loss);
}

static void update(struct training *t, double norm)
{
	struct err err = { 0 };
	optimizer_clip(&schedule, 1, norm, t->ops->params);
	ops_put_params(t->ops);
	state_update(&t->state, t->grads, true);
	model_settle(t->model, state_master(&t->state));
	if (device_check(t->ops->device, &err) < 0)
		fail_msg("%s", err.text);
}

/* A bias in front of a batch's normalisation changes nothing: its gradient is zero but for
 * rounding. */
static bool means_nothing(const struct tensor_table *table, const struct tensor *row)
{
	return tensor_table_find(table, "1.running_mean") && strcmp(row->name, "0.bias") == 0;
}

/* ||a - b|| / ||b|| of what the rows of a tensor hold. Of weights that were updated the matrices
 * alone: the gradient of a key's bias is zero but for rounding, and AdamW makes steps of their full
 * length of that. */
static void near(const struct tensor_table *table, const float *a, const float *b, double bound,
	bool matrices, const char *what)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		bool counts = row->role == TENSOR_PARAMETER && (!matrices || row->dims > 1)
			&& !means_nothing(table, row);
		double distance = counts ? fixture_distance(row, a, b) : 0;
		if (!(distance <= bound))
			fail_msg("%s of %s is off by %g, at most %g allowed", what, row->name, distance, bound);
	}
}

/* What batches left in the weights. */
static void statistics_are_near(const struct tensor_table *table, const float *a, const float *b,
	double bound)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		if (row->role == TENSOR_STATISTIC && !(fixture_distance(row, a, b) <= bound))
			fail_msg("%s is off by %g, at most %g allowed", row->name, fixture_distance(row, a, b),
				bound);
		if (row->role == TENSOR_COUNTER)
			assert_memory_equal(a + row->offset, b + row->offset, row->count * sizeof *a);
	}
}

/* Padding is never touched. */
static void padding_is_zero(const struct tensor_table *table, const float *arena)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		size_t stop = i + 1 < table->count ? table->rows[i + 1].offset : table->elements;
		for (size_t k = row->offset + row->count; k < stop; k++)
			if (arena[k] != 0)
				fail_msg("element %zu after %s is %g", k - row->offset - row->count, row->name,
					(double)arena[k]);
	}
}

static void like_the_cpu(const struct model_config *config, enum gemm_mode mode, double bound)
{
	struct training host, device;
	struct err err = { 0 };
	begin(&host, ops_cpu_create(true, &err), config);
	begin(&device, ops_of(mode), config);
	for (uint64_t step = 1; step <= STEPS; step++) {
		pass(&host, step);
		pass(&device, step);
		assert_int_equal(host.valid[step - 1], device.valid[step - 1]);
		if (!(fabs(device.losses[step - 1] / host.losses[step - 1] - 1) <= bound))
			fail_msg("loss %g instead of %g", device.losses[step - 1], host.losses[step - 1]);
		if (step == 1 || mode != GEMM_MODE_BF16)
			near(host.state.tensors, grads_of(&device), host.grads, step == 1 ? bound : 10 * bound,
				false, "the gradient");
		padding_is_zero(host.state.tensors, grads_of(&device));
		update(&host, 1);
		update(&device, 1);
		if (step == 1) { /* later the bias that means nothing is part of the means */
			float *first = device_state_read(&device.state);
			statistics_are_near(host.state.tensors, first, host.state.weights, bound);
			free(first);
		}
	}
	float *arenas = device_state_read(&device.state);
	near(host.state.tensors, arenas, host.state.weights, mode == GEMM_MODE_BF16 ? 0.2 : 100 * bound,
		true, "the weight");
	padding_is_zero(host.state.tensors, arenas);
	free(arenas);
	end(&host);
	end(&device);
}

static void gpt2_is_like_the_cpu(void **state)
{
	like_the_cpu(&fixture_gpt2, GEMM_MODE_FP32, 2e-5);
	like_the_cpu(&wide_gpt2, GEMM_MODE_FP32, 2e-5);
	like_the_cpu(&wide_gpt2, GEMM_MODE_TF32, 2e-5); /* the stand-in does not round */
}

/* Nothing reads on the host what the device has not written yet, nor the other way round. */
static void a_late_device_is_like_the_cpu(void **state)
{
	fake_stream_order(FAKE_LAZY, 0);
	like_the_cpu(&fixture_gpt2, GEMM_MODE_FP32, 2e-5);
	fake_stream_order(FAKE_RANDOM, 7);
	like_the_cpu(&fixture_gpt2, GEMM_MODE_FP32, 2e-5);
}

static void split_embedding_is_like_the_cpu(void **state)
{
	struct model_config config = wide_gpt2;
	struct training host, device;
	struct err err = { 0 };
	config.split_embedding = true;
	begin(&host, ops_cpu_create(true, &err), &config);
	begin(&device, ops_of(GEMM_MODE_FP32), &config);
	pass(&host, 1);
	pass(&device, 1);
	const struct tensor head = { .offset = host.state.tensors->elements,
		.count = (size_t)config.vocabulary * (size_t)config.width };
	near(host.state.tensors, grads_of(&device), host.grads, 2e-5, false, "the gradient");
	assert_true(fixture_distance(&head, device.host_grads, host.grads) < 2e-5);
	end(&host);
	end(&device);
}

static void mlp_is_like_the_cpu(void **state)
{
	like_the_cpu(&fixture_mlp, GEMM_MODE_FP32, 2e-5);
	like_the_cpu(&fixture_normal_mlp, GEMM_MODE_FP32, 2e-5);
}

static void bf16_is_near_the_cpu(void **state)
{
	like_the_cpu(&wide_gpt2, GEMM_MODE_BF16, 0.04);
	like_the_cpu(&fixture_mlp, GEMM_MODE_BF16, 0.04);
	like_the_cpu(&fixture_normal_mlp, GEMM_MODE_BF16, 0.04);
}

/* Our kernels stand in for what the library has not. */
static void epilogues_of_our_own_are_like_the_cpu(void **state)
{
	fake_cublas.no_epilogues = ALL_EPILOGUES;
	like_the_cpu(&wide_gpt2, GEMM_MODE_FP32, 2e-5);
	like_the_cpu(&fixture_mlp, GEMM_MODE_FP32, 2e-5);
	like_the_cpu(&wide_gpt2, GEMM_MODE_BF16, 0.04);
}

/* ---- recompute ---- */

static void one_step(struct training *t, const struct model_config *config,
	enum model_recompute level, enum gemm_mode mode)
{
	struct model_config own = *config;
	own.layers = 3;
	own.recompute = level;
	begin(t, ops_of(mode), &own);
	pass(t, 1);
	update(t, 1);
}

/* Products with and without the library's epilogues, attention on tensor cores and without: what is
 * computed again has its bits. */
static void recomputing_changes_no_bit(void **state)
{
	static const enum gemm_mode modes[] = { GEMM_MODE_FP32, GEMM_MODE_BF16, GEMM_MODE_BF16 };
	for (int k = 0; k < 3; k++) {
		struct training kept, again;
		fake_cublas.no_epilogues = k == 2 ? ALL_EPILOGUES : 0;
		one_step(&kept, &wide_gpt2, RECOMPUTE_NONE, modes[k]);
		const struct tensor_table *table = kept.state.tensors;
		for (int level = k < 2 ? RECOMPUTE_NORM : RECOMPUTE_BLOCK; level <= RECOMPUTE_BLOCK;
			 level++) {
			one_step(&again, &wide_gpt2, (enum model_recompute)level, modes[k]);
			assert_memory_equal(again.losses, kept.losses, sizeof kept.losses);
			assert_memory_equal(grads_of(&again), grads_of(&kept),
				tensor_table_gradients(table) * sizeof(float));
			assert_true(state_weights_hash(&again.state) == state_weights_hash(&kept.state));
			end(&again);
		}
		end(&kept);
	}
}

/* ---- algorithms ---- */

/* All are chosen before the first step, with what stands in for epilogues, and what was chosen is
 * used by another run. */
static void nothing_is_chosen_in_a_step(void **state)
{
	struct err err = { 0 };
	for (int missing = 0; missing < 2; missing++) {
		struct training first, second;
		fake_cublas.no_epilogues = missing ? ALL_EPILOGUES : 0;
		begin(&first, ops_of(GEMM_MODE_BF16), &wide_gpt2);
		assert_int_equal(first.ops->choose(first.ops, &err), 0);
		int chosen = fake_cublas.heuristics;
		pass(&first, 1);
		update(&first, 1);
		assert_int_equal(fake_cublas.heuristics, chosen);
		char *text = first.ops->algorithms(first.ops);
		begin(&second, ops_of(GEMM_MODE_BF16), &wide_gpt2);
		assert_int_equal(second.ops->adopt(second.ops, text, &err), 0);
		assert_int_equal(second.ops->choose(second.ops, &err), 0);
		pass(&second, 1);
		assert_int_equal(fake_cublas.heuristics, chosen);
		assert_true(first.losses[0] == second.losses[0]);
		free(text);
		end(&first);
		end(&second);
	}
}

/* All by the library, with a clock that makes its epilogues faster than our kernels; and what was
 * tuned is another run's, too. */
static double slow_without_epilogue(int epilogue, int candidate, int gemm)
{
	return epilogue == FAKE_DEFAULT ? 3 - candidate * 0.1 : 1;
}

static void tuned_runs_are_like_the_cpu(void **state)
{
	for (int mode = GEMM_MODE_FP32; mode <= GEMM_MODE_BF16; mode += GEMM_MODE_BF16) {
		struct training host, device, other;
		struct err err = { 0 };
		double bound = mode == GEMM_MODE_BF16 ? 0.04 : 2e-5;
		fake_cublas.clock = &fake_runtime.now;
		fake_cublas.duration = slow_without_epilogue;
		begin(&host, ops_cpu_create(true, &err), &wide_gpt2);
		begin(&device, ops_of((enum gemm_mode)mode), &wide_gpt2);
		begin(&other, ops_of((enum gemm_mode)mode), &wide_gpt2);
		int events = fake_runtime.events;
		if (device.ops->tune(device.ops, NO_LIMIT, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(fake_runtime.events, events);
		char *text = device.ops->algorithms(device.ops);
		assert_non_null(strstr(text, "muster-products 2 "));
		int heuristics = fake_cublas.heuristics;
		assert_int_equal(other.ops->adopt(other.ops, text, &err), 0);
		assert_int_equal(other.ops->tune(other.ops, NO_LIMIT, &err), 0);
		pass(&host, 1);
		pass(&device, 1);
		pass(&other, 1);
		assert_int_equal(fake_cublas.heuristics, heuristics);
		near(host.state.tensors, grads_of(&device), host.grads, bound, false, "the gradient");
		near(host.state.tensors, grads_of(&other), device.host_grads, 0, false,
			"the gradient of the same algorithms");
		free(text);
		end(&host);
		end(&device);
		end(&other);
	}
}

/* In all layers, both ways, in memory of its own; it is in the record, and when it fails that is
 * the error of the run. */
static void cudnns_attention_takes_the_place_of_ours(void **state)
{
	struct training host, device;
	struct err err = { 0 };
	begin(&host, ops_cpu_create(true, &err), &wide_gpt2);
	begin(&device, ops_of(GEMM_MODE_BF16), &wide_gpt2);
	struct attention_cudnn *attention =
		attention_cudnn_create(BATCH, wide_gpt2.context, wide_gpt2.width, wide_gpt2.heads, &err);
	size_t used = fake_runtime.used, workspace = attention_cudnn_workspace(attention);
	assert_int_equal(ops_cuda_take_attention(device.ops, attention, &err), 0);
	assert_int_equal(fake_runtime.used, used + workspace);
	assert_non_null(
		strstr(device.ops->libraries, "cuBLASLt 13.0.1, cuDNN 9.0.0, forward one, backward two"));
	pass(&host, 1);
	pass(&device, 1);
	assert_int_equal(fake_attention.forward, 2 * wide_gpt2.layers); /* of two microbatches */
	assert_int_equal(fake_attention.backward, 2 * wide_gpt2.layers);
	near(host.state.tensors, grads_of(&device), host.grads, 0.04, false, "the gradient");
	fake_attention.fails = true;
	pass(&device, 2);
	assert_int_equal(device_check(device.ops->device, &err), -1);
	assert_string_equal(err.text, "cudnn: couldn't run graph.execute(): a reason (1)");
	end(&host);
	end(&device);
}

static bool try_cudnn(struct training *device, struct err *why)
{
	return ops_cuda_try_attention(device->ops, BATCH, wide_gpt2.context, wide_gpt2.width,
		wide_gpt2.heads, why);
}

/* Where nobody has asked for it, it is taken if it is there and steady. What is refused leaves
 * nothing behind: no memory, and no word in the record. */
static void cudnns_attention_is_tried_out(void **state)
{
	struct training device;
	struct err err = { 0 };
	begin(&device, ops_of(GEMM_MODE_BF16), &wide_gpt2);
	const size_t used = fake_runtime.used;
	fake_attention.absent = true;
	assert_false(try_cudnn(&device, &err));
	assert_non_null(strstr(err.text, "couldn't load cuDNN"));
	fake_attention = (struct fake_attention) { .unsteady = true };
	assert_false(try_cudnn(&device, &err));
	assert_string_equal(err.text, "cuDNN's attention comes to other bits each time");
	fake_attention.fails = true;
	assert_false(try_cudnn(&device, &err));
	assert_non_null(strstr(err.text, "a reason (1)"));
	fake_attention.fails = fake_attention.unsteady = false;
	fake_runtime.most = used - fake_runtime.pinned + 1; /* no memory */
	assert_false(try_cudnn(&device, &err));
	fake_runtime.most = 0;
	assert_int_equal(fake_runtime.used, used);
	assert_int_equal(fake_attention.alive, 0);
	assert_null(strstr(device.ops->libraries, "cuDNN"));
	assert_true(try_cudnn(&device, &err));
	assert_non_null(strstr(device.ops->libraries, "cuDNN 9.0.0"));
	fake_attention.forward = 0;
	pass(&device, 1);
	assert_int_equal(fake_attention.forward, 2 * wide_gpt2.layers);
	ops_cuda_drop_attention(device.ops);
	assert_int_equal(fake_runtime.used, used);
	assert_null(strstr(device.ops->libraries, "cuDNN"));
	pass(&device, 2);
	assert_int_equal(fake_attention.forward, 2 * wide_gpt2.layers);
	assert_int_equal(device_check(device.ops->device, &err), 0);
	end(&device);
	/* It computes in bf16 only. */
	begin(&device, ops_of(GEMM_MODE_TF32), &wide_gpt2);
	assert_false(try_cudnn(&device, &err));
	end(&device);
}

/* Its plans are for one number of samples; with another, our own attention computes. */
static void another_shape_has_our_own_attention(void **state)
{
	struct training device;
	struct err err = { 0 };
	begin(&device, ops_of(GEMM_MODE_BF16), &wide_gpt2);
	struct attention_cudnn *attention = attention_cudnn_create(BATCH + 1, wide_gpt2.context,
		wide_gpt2.width, wide_gpt2.heads, &err);
	assert_int_equal(ops_cuda_take_attention(device.ops, attention, &err), 0);
	pass(&device, 1);
	assert_int_equal(fake_attention.forward + fake_attention.backward, 0);
	assert_int_equal(device_check(device.ops->device, &err), 0);
	end(&device);
}

static void the_record_names_card_and_libraries(void **state)
{
	struct ops *ops = ops_of(GEMM_MODE_TF32);
	assert_string_equal(ops->name, "cuda-tf32");
	assert_string_equal(ops->device->card, "Fake, 132 multiprocessors");
	assert_non_null(strstr(ops->libraries, "cuBLASLt 13.0.1"));
	ops->destroy(ops);
}

/* ---- memory ---- */

/* What the estimate says of the ops is what they take. */
static void scratch_is_estimated(void **state)
{
	struct err err = { 0 };
	struct model *model = model_create(&wide_gpt2, &err);
	struct ops_shapes shapes;
	for (int mode = GEMM_MODE_FP32; mode <= GEMM_MODE_BF16; mode++) {
		struct ops *ops = ops_of((enum gemm_mode)mode);
		model_shapes(model, BATCH, &shapes);
		assert_int_equal(ops->prepare(ops, &shapes, &err), 0);
		assert_int_equal(fake_runtime.used,
			ops_cuda_scratch(&shapes, (enum gemm_mode)mode) + PINNED);
		assert_int_equal(ops->prepare(ops, &shapes, &err), 0); /* again: the old is given back */
		assert_int_equal(fake_runtime.used,
			ops_cuda_scratch(&shapes, (enum gemm_mode)mode) + PINNED);
		ops->destroy(ops);
	}
	model_destroy(model);
}

static void check_activations(const struct model_config *config, enum gemm_mode mode)
{
	struct err err = { 0 };
	struct ops_shapes shapes;
	struct model *model = model_create(config, &err);
	struct ops *ops = ops_of(mode);
	model_shapes(model, BATCH, &shapes);
	assert_int_equal(ops->prepare(ops, &shapes, &err), 0);
	size_t before = fake_runtime.used;
	assert_int_equal(model_prepare(model, ops, BATCH, &err), 0);
	assert_int_equal(fake_runtime.used - before,
		model_activations(model, BATCH, true, ops->element));
	model_destroy(model);
	ops->destroy(ops);
}

/* And of activations, at each level. */
static void activations_are_estimated(void **state)
{
	struct model_config config = wide_gpt2;
	for (int level = RECOMPUTE_NONE; level <= RECOMPUTE_BLOCK; level++) {
		config.recompute = (enum model_recompute)level;
		check_activations(&config, GEMM_MODE_FP32);
		check_activations(&config, GEMM_MODE_BF16);
	}
	check_activations(&fixture_normal_mlp, GEMM_MODE_FP32);
	check_activations(&fixture_normal_mlp, GEMM_MODE_BF16);
}

static void full_memory_is_told(void **state)
{
	struct err err = { 0 };
	struct ops *ops = ops_of(GEMM_MODE_FP32);
	struct model *model = model_create(&wide_gpt2, &err);
	struct ops_shapes shapes;
	model_shapes(model, BATCH, &shapes);
	fake_runtime.most = ops_cuda_scratch(&shapes, GEMM_MODE_FP32) + 70000;
	assert_int_equal(model_prepare(model, ops, BATCH, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "on the GPU for the arenas of the training"));
	assert_non_null(strstr(err.text, "--microbatch"));
	assert_non_null(strstr(err.text, "--recompute block"));
	model_destroy(model);
	ops->destroy(ops);
	fake_runtime.most = 1 << 20; /* not even a workspace */
	assert_null(ops_cuda_create_over(&fake_cublas_library, &gpu, GEMM_MODE_FP32, &err));
	assert_non_null(strstr(err.text,
		"couldn't get 33.6 MB on the GPU for the workspace of the matrix products"));
}

/* ---- failures ---- */

/* The first error is kept, and nothing is computed after it. */
static void failures_stay(void **state)
{
	struct err err = { 0 };
	struct training t;
	begin(&t, ops_of(GEMM_MODE_FP32), &wide_gpt2);
	assert_int_equal(device_check(t.ops->device, &err), 0);
	fake_runtime.copies_fail = cudaErrorLaunchFailure;
	pass(&t, 1);
	fake_runtime.copies_fail = 0;
	int plans = fake_cublas.plans;
	pass(&t, 1);
	assert_int_equal(fake_cublas.plans, plans);
	assert_int_equal(device_check(t.ops->device, &err), -1);
	assert_non_null(strstr(err.text, "couldn't run cudaMemcpyAsync("));
	assert_non_null(strstr(err.text,
		"unspecified launch failure (cudaErrorLaunchFailure, trainer/cuda/host/ops_cuda.c:"));
	end(&t);
	const struct gpu other = { .index = 1, .name = "Fake" };
	struct ops *ops = ops_cuda_create_over(&fake_cublas_library, &other, GEMM_MODE_FP32, &err);
	assert_non_null(ops);
	assert_null(ops->device->alloc(ops->device, 100)); /* its device can't be made this thread's */
	assert_int_equal(device_check(ops->device, &err), -1);
	assert_non_null(strstr(err.text, "cudaSetDevice("));
	ops->destroy(ops);
}

static void norms_are_the_cpus(void **state)
{
	struct err err = { 0 };
	struct ops *cpu = ops_cpu_create(true, &err), *ops = ops_of(GEMM_MODE_FP32);
	size_t count = 3 * NORM_BLOCK + 77;
	float *x = calloc(count, sizeof *x),
		  *device = ops->device->alloc(ops->device, count * sizeof *x);
	double mine[4], theirs[4], *sums = ops->device->alloc(ops->device, sizeof mine);
	for (size_t i = 0; i < count; i++)
		x[i] = sinf((float)i);
	ops->device->copy_in(ops->device, device, x, count * sizeof *x);
	ops->square_sums(ops, sums, device, count);
	ops->device->copy_out(ops->device, mine, sums, sizeof mine);
	cpu->square_sums(cpu, theirs, x, count);
	assert_memory_equal(mine, theirs, sizeof mine);
	ops->device->release(ops->device, device);
	ops->device->release(ops->device, sums);
	free(x);
	ops->destroy(ops);
	cpu->destroy(cpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(gpt2_is_like_the_cpu),
		TEST(a_late_device_is_like_the_cpu),
		TEST(split_embedding_is_like_the_cpu),
		TEST(mlp_is_like_the_cpu),
		TEST(bf16_is_near_the_cpu),
		TEST(epilogues_of_our_own_are_like_the_cpu),
		TEST(recomputing_changes_no_bit),
		TEST(nothing_is_chosen_in_a_step),
		TEST(tuned_runs_are_like_the_cpu),
		TEST(cudnns_attention_takes_the_place_of_ours),
		TEST(cudnns_attention_is_tried_out),
		TEST(another_shape_has_our_own_attention),
		TEST(the_record_names_card_and_libraries),
		TEST(scratch_is_estimated),
		TEST(activations_are_estimated),
		TEST(full_memory_is_told),
		TEST(failures_stay),
		TEST(norms_are_the_cpus),
#undef TEST
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
