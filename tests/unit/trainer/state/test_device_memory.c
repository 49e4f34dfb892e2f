/* SPDX-License-Identifier: Apache-2.0 */
/* A training on a device whose memory the host can't touch: nothing reaches for it, and the bits
 * are those of one on the host, with several slots, microbatches, masked steps, saves in between
 * and shards of the moments. */
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

#include "tests/fakes/device_memory_ops.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "tests/unit/trainer/state/device_state.h"
#include "trainer/ddp/ddp.h"
#include "trainer/state/device_snapshot.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/buffer_pool.h"

#define STEPS 5
#define SLOTS 3
#define MICROBATCHES 2 /* of a slot */
#define MASKED 3       /* step whose loss is not finite */
#define SAVED 2 /* step after which the state is handed over; its copy has to stay as it is */

static const struct optimizer_config schedule = { .learning_rate = 0.01,
	.minimal_learning_rate = 0.001,
	.steps = STEPS,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 0.5 };

struct plan {
	const struct model_config *config;
	enum model_recompute recompute; /* of the remote side */
	bool device_memory, zero, saves, no_pins;
};

/* What came of it. */
struct outcome {
	double losses[STEPS], norms[STEPS];
	size_t elements;
	float *state, *saved; /* [3 · elements] */
	uint64_t hash;
	struct remote_traffic traffic;
};

struct training {
	struct ops *ops;
	struct model *model;
	struct ddp *ddp;
	struct state state;
};

static int begin(struct training *t, const struct plan *plan, struct comm *comm, struct err *err)
{
	const struct ddp_config config = { .slots = SLOTS, .bucket_bytes = 1024, .zero = plan->zero };
	struct model_config forgetful = *plan->config;
	size_t count;
	forgetful.recompute = plan->recompute;
	t->ops = plan->device_memory ? device_memory_ops_create(err) : ops_cpu_create(true, err);
	if (plan->no_pins && plan->device_memory)
		device_memory_ops_refuse_pins(t->ops);
	t->model = model_create(plan->device_memory ? &forgetful : plan->config, err);
	if (!t->ops || !t->model || model_prepare(t->model, t->ops, 2, err) < 0)
		return -1;
	t->ddp = ddp_create(comm, t->ops, model_tensors(t->model), &config, err);
	if (!t->ddp)
		return -1;
	const struct zero_shard *own = ddp_own(t->ddp, &count);
	if (state_alloc_saved(&t->state, t->ops, model_tensors(t->model), own, count, err) < 0)
		return -1;
	state_init(&t->state, 5);
	return state_upload(&t->state, err);
}

static void end(struct training *t)
{
	ddp_destroy(t->ddp);
	state_free(&t->state);
	model_destroy(t->model);
	t->ops->destroy(t->ops);
}

static void train_slot(struct training *t, int slot, uint64_t step)
{
	const struct fixture f = { .model = t->model, .table = model_tensors(t->model) };
	int64_t valid = 0;
	for (int i = 0; i < MICROBATCHES; i++) {
		int64_t counted;
		struct batch batch = fixture_batch(&f, 2, step * 100 + (uint64_t)(slot * MICROBATCHES + i));
		model_train(t->model, &batch, ddp_slot_grads(t->ddp, slot), i > 0,
			ddp_slot_loss(t->ddp, slot), &counted, i == MICROBATCHES - 1 ? ddp_ready : NULL,
			t->ddp);
		valid += counted;
		fixture_free_batch(&batch);
	}
	ddp_slot_end(t->ddp, valid);
}

static int one_step(struct training *t, uint64_t step, struct outcome *outcome, struct err *err)
{
	struct ddp_result result;
	const struct ddp_control control = { .step = step };
	optimizer_begin(&schedule, step, 40, t->ops->params);
	ops_put_params(t->ops);
	ddp_begin(t->ddp, step);
	for (int slot = 0; slot < SLOTS; slot++)
		train_slot(t, slot, step);
	if (ddp_finish(t->ddp, &control, &result, err) < 0)
		return -1;
	bool changes = optimizer_clip(&schedule, step == MASKED ? (double)NAN : result.loss,
		result.norm, t->ops->params);
	ops_put_params(t->ops);
	state_update(&t->state, ddp_grads(t->ddp), changes);
	if (changes)
		model_settle(t->model, state_master(&t->state));
	model_bind(t->model, state_compute(&t->state), state_master(&t->state));
	t->state.step = step;
	outcome->losses[step - 1] = result.loss;
	outcome->norms[step - 1] = result.norm;
	return device_check(t->ops->device, err);
}

static float *copy_of(const float *weights, const float *m, const float *v, size_t elements)
{
	float *copy = calloc(3 * elements, sizeof *copy);
	memcpy(copy, weights, elements * sizeof *copy);
	memcpy(copy + elements, m, elements * sizeof *copy);
	memcpy(copy + 2 * elements, v, elements * sizeof *copy);
	return copy;
}

/* The memory of saves, as async_saver.c has it. */
struct saves {
	struct layout layout;
	struct buffer_pool pool;               /* of a state on the host */
	struct device_snapshot *snapshot_copy; /* of one on the device */
	pthread_t finisher;                    /* waits for the copies */
	const float *given;
	struct err err;
};

static int begin_saves(struct saves *saves, const struct plan *plan, struct training *t,
	struct err *err)
{
	size_t count;
	const struct zero_shard *shards = ddp_shards(t->ddp, &count);
	if (layout_make(&saves->layout, t->state.tensors, 0, 1, shards, count, err) < 0)
		return -1;
	if (!plan->device_memory)
		return buffer_pool_start(&saves->pool, &t->state, &saves->layout, 2, err);
	saves->snapshot_copy = device_snapshot_start(&t->state, &saves->layout, 1, err);
	return saves->snapshot_copy && device_snapshot_is_pinned(saves->snapshot_copy) == !plan->no_pins
		? 0
		: -1;
}

static void *finish(void *arg)
{
	struct saves *saves = arg;
	device_snapshot_finish(saves->snapshot_copy, 20, &saves->err);
	return NULL;
}

/* What is handed over: on the host the live set, from which the state moves on, on the device a
 * copy, which nobody has waited for. */
static int save(struct saves *saves, const struct plan *plan, struct training *t, struct err *err)
{
	if (!plan->device_memory) {
		saves->given = t->state.weights;
		buffer_pool_switch(&saves->pool, 1);
		return 0;
	}
	saves->given = device_snapshot_memory(saves->snapshot_copy)->base[0];
	if (device_snapshot_begin(saves->snapshot_copy, 0, err) < 0)
		return -1;
	if (plan->no_pins) /* the next update waits for it */
		return pthread_create(&saves->finisher, NULL, finish, saves);
	return 0;
}

static void end_saves(struct saves *saves)
{
	buffer_pool_stop(&saves->pool);
	device_snapshot_stop(saves->snapshot_copy);
	layout_clear(&saves->layout);
}

static int run(struct comm *comm, const struct plan *plan, struct outcome *outcome, struct err *err)
{
	struct training t = { 0 };
	struct saves saves = { 0 };
	if (begin(&t, plan, comm, err) < 0 || (plan->saves && begin_saves(&saves, plan, &t, err) < 0))
		return -1;
	size_t elements = outcome->elements = t.state.tensors->elements;
	model_bind(t.model, state_compute(&t.state), state_master(&t.state));
	for (uint64_t step = 1; step <= STEPS; step++)
		if (one_step(&t, step, outcome, err) < 0
			|| (plan->saves && step == SAVED && save(&saves, plan, &t, err) < 0))
			return -1;
	if (saves.snapshot_copy && plan->no_pins)
		pthread_join(saves.finisher, NULL);
	else if (saves.snapshot_copy)
		finish(&saves);
	WORLD_CHECK(saves.err.text[0] == '\0');
	outcome->hash = state_weights_hash(&t.state);
	outcome->state = plan->device_memory ? device_state_read(&t.state)
										 : copy_of(t.state.weights, t.state.m, t.state.v, elements);
	if (plan->saves)
		outcome->saved =
			copy_of(saves.given, saves.given + elements, saves.given + 2 * elements, elements);
	if (plan->device_memory)
		outcome->traffic = device_memory_ops_traffic(t.ops);
	end_saves(&saves);
	end(&t);
	return 0;
}

static void clear(struct outcome *outcome)
{
	free(outcome->state);
	free(outcome->saved);
}

/* The same on both sides. */
static int compare(struct comm *comm, void *arg, struct err *err)
{
	struct plan plan = *(const struct plan *)arg;
	struct outcome host = { 0 }, device = { 0 };
	plan.device_memory = false;
	if (run(comm, &plan, &host, err) < 0)
		return -1;
	plan.device_memory = true;
	if (run(comm, &plan, &device, err) < 0)
		return -1;
	size_t bytes = 3 * host.elements * sizeof(float);
	WORLD_CHECK(memcmp(host.losses, device.losses, sizeof host.losses) == 0);
	WORLD_CHECK(memcmp(host.norms, device.norms, sizeof host.norms) == 0);
	WORLD_CHECK(host.losses[0] > 0 && host.norms[0] > 0 && host.losses[0] != host.losses[1]);
	WORLD_CHECK(memcmp(host.state, device.state, bytes) == 0);
	WORLD_CHECK(host.hash == device.hash);
	WORLD_CHECK(!plan.saves || memcmp(host.saved, device.saved, bytes) == 0);
	WORLD_CHECK(!plan.saves || memcmp(host.saved, host.state, bytes) != 0);
	/* Nothing goes in or out step by step but batches and losses: all arenas went in once, and out
	 * at saves and for the hash. */
	WORLD_CHECK(device.traffic.in < bytes + 20000
		&& device.traffic.out < (plan.saves ? 3 : 2) * bytes + 20000);
	clear(&host);
	clear(&device);
	return 0;
}

static void same_bits_of(struct plan plan)
{
	struct world_rank ranks[1];
	world_run(1, 30, compare, &plan, ranks);
	world_assert_ok(1, ranks);
}

static void same_bits(const struct model_config *config, bool zero, bool saves)
{
	same_bits_of((struct plan) { .config = config, .zero = zero, .saves = saves });
}

static void gpt2_has_the_bits_of_the_host(void **state)
{
	struct model_config split = fixture_gpt2;
	same_bits(&fixture_gpt2, false, false);
	same_bits(&fixture_gpt2, false, true);
	split.split_embedding = true;
	same_bits(&split, false, true);
}

static void mlp_has_the_bits_of_the_host(void **state)
{
	same_bits(&fixture_mlp, false, true);
	same_bits(&fixture_normal_mlp, false, true);
}

/* The host keeps everything, and the device forgets. */
static void what_is_recomputed_has_the_bits_of_the_host(void **state)
{
	for (int level = RECOMPUTE_NORM; level <= RECOMPUTE_BLOCK; level++)
		same_bits_of((struct plan) { .config = &fixture_gpt2,
			.recompute = (enum model_recompute)level,
			.zero = level % 2,
			.saves = true });
}

static void shards_have_the_bits_of_the_host(void **state)
{
	same_bits(&fixture_gpt2, true, false);
	same_bits(&fixture_mlp, true, false);
	same_bits(&fixture_gpt2, true, true);
}

/* Pinned memory is refused: the update waits for the copies on the host. */
static void saves_without_pinned_memory_have_the_bits_of_the_host(void **state)
{
	same_bits_of((struct plan) { .config = &fixture_gpt2, .saves = true, .no_pins = true });
	same_bits_of(
		(struct plan) { .config = &fixture_gpt2, .zero = true, .saves = true, .no_pins = true });
}

/* ---- batches that all ranks are normalised by ---- */

#define JOINED 3
#define ROWS 8

/* Gradients, weights with their statistics, and losses with and without training. */
struct joined {
	float *grads, *weights;
	double loss, validation;
};

/* The last rank has nothing in the second of three microbatches. */
static void train_joined(const struct fixture *f, int rank, float *grads, double *loss)
{
	int64_t valid;
	for (int i = 0; i < 3; i++) {
		struct batch batch = fixture_batch(f, ROWS, (uint64_t)(10 * rank + i));
		if (rank == JOINED - 1 && i == 1)
			model_absent(f->model, NULL, NULL);
		else
			model_train(f->model, &batch, grads, i > 0, loss, &valid, NULL, NULL);
		fixture_free_batch(&batch);
	}
}

static int run_joined(struct comm *comm, struct ops *ops, struct joined *out, struct err *err)
{
	struct model *model = model_create(&fixture_normal_mlp, err);
	const struct tensor_table *table = model_tensors(model);
	const struct fixture f = { .model = model, .table = table };
	struct state state;
	int64_t valid;
	size_t bytes = table->elements * sizeof(float);
	if (model_prepare(model, ops, ROWS, err) < 0 || model_join(model, comm, NULL, err) < 0
		|| state_alloc(&state, ops, table, NULL, 0, err) < 0)
		return -1;
	state_init(&state, 5);
	if (state_upload(&state, err) < 0)
		return -1;
	float *grads = ops->device->alloc(ops->device, bytes);
	double *loss = ops->device->alloc(ops->device, sizeof *loss);
	ops->params->loss_scale = 0.25f;
	ops_put_params(ops);
	model_bind(model, state_compute(&state), state_master(&state));
	train_joined(&f, comm_rank(comm), grads, loss);
	model_settle(model, state_master(&state));
	model_bind(model, state_compute(&state), state_master(&state));
	struct batch batch = fixture_batch(&f, ROWS, 99);
	model_loss(model, &batch, &out->validation, &valid);
	fixture_free_batch(&batch);
	out->grads = malloc(bytes);
	out->weights = malloc(bytes);
	void (*const copy)(struct device *, void *, const void *, size_t) = ops->device->copy_out;
	if (copy) {
		copy(ops->device, out->grads, grads, bytes);
		copy(ops->device, out->weights, state_master(&state), bytes);
		copy(ops->device, &out->loss, loss, sizeof *loss);
	} else {
		memcpy(out->grads, grads, bytes);
		memcpy(out->weights, state.weights, bytes);
		out->loss = *loss;
	}
	ops->device->release(ops->device, grads);
	ops->device->release(ops->device, loss);
	state_free(&state);
	model_destroy(model);
	ops->destroy(ops);
	return 0;
}

static int compare_joined(struct comm *comm, void *arg, struct err *err)
{
	struct joined host, device;
	struct model *model = model_create(&fixture_normal_mlp, err);
	const struct tensor_table *table = model_tensors(model);
	size_t bytes = table->elements * sizeof(float);
	const struct tensor *batches = tensor_table_find(table, "1.num_batches_tracked");
	if (run_joined(comm, ops_cpu_create(true, err), &host, err) < 0
		|| run_joined(comm, device_memory_ops_create(err), &device, err) < 0)
		return -1;
	int64_t counted;
	memcpy(&counted, device.weights + batches->offset, sizeof counted);
	WORLD_CHECK(counted == 3);
	WORLD_CHECK(memcmp(host.grads, device.grads, bytes) == 0);
	WORLD_CHECK(memcmp(host.weights, device.weights, bytes) == 0);
	WORLD_CHECK(host.loss == device.loss && host.validation == device.validation && host.loss > 0);
	free(host.grads), free(host.weights), free(device.grads), free(device.weights);
	model_destroy(model);
	return 0;
}

static void ranks_are_normalised_together(void **state)
{
	struct world_rank ranks[JOINED];
	world_run(JOINED, 20, compare_joined, NULL, ranks);
	world_assert_ok(JOINED, ranks);
}

/* What is told before anything is allocated is what is allocated then. */
static void activations_are_estimated(void **state)
{
	struct err err = { 0 };
	struct model *model = model_create(&fixture_gpt2, &err);
	size_t B = 4, M = B * 7, C = 12, layers = 2, vectors = M * sizeof(float);
	size_t rounded = (vectors + 255) / 256 * 256;
#define ROUND(bytes) (((bytes) + 255) / 256 * 256)
	size_t block = 5 * ROUND(M * C * 4) + ROUND(M * 3 * C * 4) + 2 * ROUND(M * 4 * C * 4)
		+ 4 * rounded + ROUND(M * 3 * 4);
	size_t rest = 4 * ROUND(M * C * 4) + 2 * rounded + ROUND(M * 4 * C * 4) + rounded;
	assert_int_equal(model_activations(model, (int)B, false, 4), layers * block + rest);
	assert_int_equal(model_activations(model, (int)B, true, 4),
		layers * block + rest + 2 * rounded + 256);
	assert_true(
		model_activations(model, (int)B, true, 2) < model_activations(model, (int)B, true, 4));
#undef ROUND
	model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gpt2_has_the_bits_of_the_host),
		cmocka_unit_test(mlp_has_the_bits_of_the_host),
		cmocka_unit_test(what_is_recomputed_has_the_bits_of_the_host),
		cmocka_unit_test(shards_have_the_bits_of_the_host),
		cmocka_unit_test(ranks_are_normalised_together),
		cmocka_unit_test(saves_without_pinned_memory_have_the_bits_of_the_host),
		cmocka_unit_test(activations_are_estimated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
