/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism over GPUs that are stand-ins, among real processes: made-up gradients against
 * their direct sums, and GPT-2 trained by 1 to 4 ranks with the very same bits. The devices do
 * everything as late as they may, or in any order, so a wait that is missing shows. Nothing here
 * says anything of a GPU. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#if defined HAVE_CUBLAS && defined HAVE_NCCL
#include "tests/fakes/fake_cublas.h"
#include "tests/fakes/fake_nccl.h"
#include "tests/fakes/fake_runtime.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_work.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "trainer/comm/comm_nccl.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/state.h"

#define WORLDS 4
#define WRONG "the bits of " /* what a rank says that has others than it should */

static const struct gpu gpu = { .name = "Fake", .capability = 90, .processors = 132 };

static struct ops *open_gpu(struct comm *comm, enum gemm_mode mode, struct err *err)
{
	struct ops *ops = ops_cuda_create_over(&fake_cublas_library, &gpu, mode, err);
	return ops && comm_attach(comm, ops->device, err) == 0 ? ops : NULL;
}

/* ---- made-up gradients ---- */

struct plan {
	const struct ddp_work *work;
	enum fake_order order;
	bool deaf;
};

/* A rank's gradients as they are to become, on the device. */
struct made {
	struct ops *ops;
	const struct tensor_table *table;
	float *zeros, *grads[STEPS][16]; /* by slot */
};

static int make_up(struct made *made, const struct ddp_work *work, int first, int count,
	struct err *err)
{
	size_t elements = tensor_table_gradients(made->table);
	float *host = calloc(elements, sizeof *host);
	made->zeros = made->ops->device->alloc(made->ops->device, elements * sizeof *host);
	for (uint64_t step = 0; step < STEPS; step++)
		for (int slot = first; slot < first + count; slot++) {
			for (int layer = 0; layer < LAYERS; layer++)
				ddp_work_fill_layer(&work->table, host, step, slot, layer);
			made->grads[step][slot] =
				made->ops->device->alloc(made->ops->device, elements * sizeof *host);
			made->ops->device->copy_in(made->ops->device, made->grads[step][slot], host,
				elements * sizeof *host);
		}
	free(host);
	return device_check(made->ops->device, err);
}

/* Queued, as a backward pass is. */
static void compute_layer(const struct made *made, float *grads, uint64_t step, int slot, int layer)
{
	const float *from = made->grads[step][slot];
	size_t elements = made->table->elements;
	for (int i = 0; i < made->table->count; i++) {
		const struct tensor *row = &made->table->rows[i];
		if (row->layer == layer)
			made->ops->add(made->ops, grads + row->offset, from + row->offset, made->zeros,
				row->count);
	}
	if (layer == 0 && made->table->split_count)
		made->ops->add(made->ops, grads + elements, from + elements, made->zeros,
			made->table->split_count);
}

static int compare_run(const struct made *made, const float *grads, const float *wanted,
	size_t first, size_t end, struct err *err)
{
	float *host = malloc((end - first) * sizeof *host + 1);
	made->ops->device->copy_out(made->ops->device, host, grads + first,
		(end - first) * sizeof *host);
	int rc = memcmp(host, wanted + first, (end - first) * sizeof *host);
	free(host);
	return rc ? err_set(err, WRONG "elements %zu to %zu are wrong", first, end) : 0;
}

static int compare_grads(const struct made *made, const struct ddp *ddp, const float *wanted,
	struct err *err)
{
	size_t count;
	const struct zero_shard *own = ddp_own(ddp, &count);
	for (int i = 0; i < made->table->count; i++) {
		size_t first = made->table->rows[i].offset, end = first + made->table->rows[i].count;
		for (size_t k = 0; k < (own ? count : 1); k++) {
			size_t from = own && own[k].first > first ? own[k].first : first,
				   to = own && own[k].end < end ? own[k].end : end;
			if (from < to && compare_run(made, ddp_grads(ddp), wanted, from, to, err) < 0)
				return -1;
		}
	}
	return 0;
}

static int body_made_up(struct comm *comm, void *arg, struct err *err)
{
	const struct plan *plan = arg;
	struct ddp_work work = *plan->work;
	struct ddp_result result;
	struct made made = { .ops = open_gpu(comm, GEMM_MODE_FP32, err), .table = &work.table };
	work.ops = made.ops;
	struct ddp *ddp = made.ops ? ddp_work_create(comm, &work, err) : NULL;
	if (!ddp || make_up(&made, &work, ddp_first_slot(ddp), ddp_slot_count(ddp), err) < 0)
		return -1;
	fake_stream_order(plan->order, (uint64_t)comm_rank(comm));
	fake_runtime.deaf = plan->deaf;
	for (uint64_t step = 0; step < STEPS; step++) {
		ddp_begin(ddp, step);
		for (int slot = ddp_first_slot(ddp); slot < ddp_first_slot(ddp) + ddp_slot_count(ddp);
			 slot++) {
			for (int layer = 0; layer < LAYERS; layer++) {
				compute_layer(&made, ddp_slot_grads(ddp, slot), step, slot, layer);
				ddp_ready(ddp, layer);
			}
			double loss = ddp_work_slot_loss(step, slot);
			made.ops->device->put(made.ops->device, ddp_slot_loss(ddp, slot), &loss, sizeof loss);
			ddp_slot_end(ddp, VALID + slot);
		}
		struct ddp_control control = ddp_work_control(comm, step);
		if (ddp_finish(ddp, &control, &result, err) < 0 || device_check(made.ops->device, err) < 0
			|| compare_grads(&made, ddp, work.grads[step], err) < 0)
			return -1;
		if (result.norm != work.norm[step] || result.valid != work.valid)
			return err_set(err, WRONG "the norm are wrong: %a instead of %a", result.norm,
				work.norm[step]);
	}
	ddp_destroy(ddp);
	return 0;
}

static void made_up(int slots, size_t bucket_bytes, bool zero, bool split, enum fake_order order,
	int world)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work work;
	ddp_work_make_split(&work, slots, bucket_bytes, 0, split);
	work.zero = zero;
	world_run(world, 30, body_made_up, &(struct plan) { &work, order, false }, ranks);
	world_assert_ok(world, ranks);
	ddp_work_free(&work);
}

static void sums_have_the_bits_of_the_tree(void **state)
{
	made_up(5, 1 << 20, false, false, FAKE_LAZY, 1);
	made_up(4, 1 << 20, false, false, FAKE_LAZY, 2);
	made_up(7, 300000, false, true, FAKE_LAZY, 3); /* early pieces */
	made_up(6, 1 << 20, true, false, FAKE_RANDOM, 4);
	made_up(4, 1 << 20, true, true, FAKE_LAZY, 2);
}

/* The reason for the order in which the devices work here: it tells. */
static void a_missing_start_event_is_a_wrong_sum(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work work;
	int wrong = 0;
	ddp_work_make(&work, 4, 1 << 20, 0);
	world_run(2, 30, body_made_up, &(struct plan) { &work, FAKE_LAZY, true }, ranks);
	for (int rank = 0; rank < 2; rank++)
		wrong += ranks[rank].rc < 0 && strncmp(ranks[rank].err.text, WRONG, strlen(WRONG)) == 0;
	assert_true(wrong > 0);
	ddp_work_free(&work);
}

/* ---- a training ---- */

#define UPDATES 3
#define SLOTS 4

static const struct optimizer_config schedule = { .learning_rate = 0.01,
	.minimal_learning_rate = 0.001,
	.steps = UPDATES,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 0.5 };

/* What came of it on each rank of each world, in memory that the processes share. */
struct outcome {
	double losses[UPDATES], norms[UPDATES];
	uint64_t weights;
};

static struct outcome (*outcomes)[WORLDS];

struct training {
	enum gemm_mode mode;
	bool zero, native, bf16;
	int nodes; /* 0: each rank counts as one */
	enum fake_order order;

	struct ops *ops;
	struct model *model;
	struct ddp *ddp;
	struct state state;
};

static int begin(struct training *t, struct comm *comm, struct err *err)
{
	const struct ddp_config config = { .slots = SLOTS,
		.bucket_bytes = 4096,
		.zero = t->zero,
		.native = t->native,
		.bf16 = t->bf16,
		.node = comm_rank(comm) * t->nodes / comm_size(comm) };
	size_t count;
	t->ops = open_gpu(comm, t->mode, err);
	t->model = model_create(&fixture_gpt2, err);
	if (!t->ops || !t->model || model_prepare(t->model, t->ops, 1, err) < 0
		|| t->ops->choose(t->ops, err) < 0)
		return -1;
	t->ddp = ddp_create(comm, t->ops, model_tensors(t->model), &config, err);
	if (!t->ddp)
		return -1;
	const struct zero_shard *own = ddp_own(t->ddp, &count);
	if (state_alloc(&t->state, t->ops, model_tensors(t->model), own, count, err) < 0)
		return -1;
	state_init(&t->state, 5);
	model_set_weights_wait(t->model, ddp_wait_weights, t->ddp);
	if (state_upload(&t->state, err) < 0)
		return -1;
	model_bind(t->model, state_compute(&t->state), state_compute(&t->state));
	return 0;
}

static void train_slot(struct training *t, int slot, uint64_t step)
{
	const struct fixture f = { .model = t->model, .table = model_tensors(t->model) };
	int64_t valid;
	struct batch batch = fixture_batch(&f, 1, step * 100 + (uint64_t)slot);
	model_train(t->model, &batch, ddp_slot_grads(t->ddp, slot), 0, ddp_slot_loss(t->ddp, slot),
		&valid, ddp_ready, t->ddp);
	ddp_slot_end(t->ddp, valid);
	fixture_free_batch(&batch);
}

/* As train_loop.c does it. */
static int one_step(struct training *t, uint64_t step, struct outcome *outcome, struct err *err)
{
	struct ddp_result result;
	const struct ddp_control control = { .step = step };
	optimizer_begin(&schedule, step, 40, t->ops->params);
	ops_put_params(t->ops);
	ddp_begin(t->ddp, step);
	for (int slot = ddp_first_slot(t->ddp); slot < ddp_first_slot(t->ddp) + ddp_slot_count(t->ddp);
		 slot++)
		train_slot(t, slot, step);
	if (ddp_finish(t->ddp, &control, &result, err) < 0)
		return -1;
	bool changes = optimizer_clip(&schedule, result.loss, result.norm, t->ops->params);
	ops_put_params(t->ops);
	state_update(&t->state, ddp_grads(t->ddp), changes);
	ddp_allgather_weights(t->ddp, state_master(&t->state));
	if (t->zero && ddp_whole(t->ddp, &result.exposed, err) < 0)
		return -1;
	if (t->zero)
		state_allgather_weights(&t->state);
	model_bind(t->model, state_compute(&t->state), state_compute(&t->state));
	t->state.step = step;
	outcome->losses[step - 1] = result.loss;
	outcome->norms[step - 1] = result.norm;
	return device_check(t->ops->device, err);
}

static int body_train(struct comm *comm, void *arg, struct err *err)
{
	struct training t = *(const struct training *)arg;
	struct outcome *outcome = &outcomes[comm_size(comm) - 1][comm_rank(comm)];
	*outcome = (struct outcome) { 0 };
	if (begin(&t, comm, err) < 0)
		return -1;
	fake_stream_order(t.order, (uint64_t)comm_rank(comm));
	for (uint64_t step = 1; step <= UPDATES; step++)
		if (one_step(&t, step, outcome, err) < 0)
			return -1;
	outcome->weights = state_weights_hash(&t.state);
	ddp_destroy(t.ddp);
	return 0;
}

static void train(struct training plan, int world)
{
	struct world_rank ranks[WORLD_MAX];
	world_run(world, 30, body_train, &plan, ranks);
	world_assert_ok(world, ranks);
	for (int rank = 1; rank < world; rank++)
		assert_memory_equal(&outcomes[world - 1][rank], &outcomes[world - 1][0],
			sizeof(struct outcome));
	assert_true(outcomes[world - 1][0].losses[0] > 0
		&& outcomes[world - 1][0].losses[0] != outcomes[world - 1][0].losses[1]);
}

static void like_one_rank(struct training plan, int world)
{
	train(plan, world);
	assert_memory_equal(&outcomes[world - 1][0], &outcomes[0][0], sizeof(struct outcome));
}

static void several_ranks_have_the_bits_of_one(void **state)
{
	train((struct training) { .order = FAKE_EAGER }, 1);
	like_one_rank((struct training) { .order = FAKE_LAZY }, 1);
	like_one_rank((struct training) { .order = FAKE_LAZY }, 2);
	like_one_rank((struct training) { .order = FAKE_RANDOM }, 3);
	like_one_rank((struct training) { .order = FAKE_LAZY }, 4);
	like_one_rank((struct training) { .order = FAKE_LAZY, .zero = true }, 3);
	like_one_rank((struct training) { .order = FAKE_RANDOM, .zero = true }, 4);
}

static void by_way_of_nodes_too(void **state)
{
	train((struct training) { .order = FAKE_EAGER }, 1);
	like_one_rank((struct training) { .order = FAKE_LAZY, .nodes = 2 }, 4);
	like_one_rank((struct training) { .order = FAKE_RANDOM, .nodes = 2 }, 3);
	like_one_rank((struct training) { .order = FAKE_RANDOM, .nodes = 2, .zero = true }, 4);
	like_one_rank((struct training) { .order = FAKE_LAZY, .nodes = 2, .zero = true }, 3);
}

static void they_have_in_bf16_too(void **state)
{
	train((struct training) { .mode = GEMM_MODE_BF16, .order = FAKE_EAGER }, 1);
	like_one_rank((struct training) { .mode = GEMM_MODE_BF16, .order = FAKE_LAZY }, 3);
	like_one_rank((struct training) { .mode = GEMM_MODE_BF16, .order = FAKE_LAZY, .zero = true },
		2);
}

/* The library's sum: near, and the same on all ranks. */
static void native_sums_are_near(void **state)
{
	train((struct training) { .order = FAKE_EAGER }, 1);
	for (int bf16 = 0; bf16 < 2; bf16++) {
		train((struct training) { .order = FAKE_LAZY, .native = true, .bf16 = bf16 }, 3);
		for (int step = 0; step < UPDATES; step++) {
			assert_true(fabs(outcomes[2][0].losses[step] / outcomes[0][0].losses[step] - 1)
				< (bf16 ? 1e-2 : 1e-3));
			assert_true(fabs(outcomes[2][0].norms[step] / outcomes[0][0].norms[step] - 1)
				< (bf16 ? 5e-2 : 1e-2));
		}
	}
}

static int set_up(void **state)
{
	world_provider = &comm_nccl;
	outcomes = mmap(NULL, WORLDS * sizeof *outcomes, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return outcomes == MAP_FAILED ? -1 : 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_have_the_bits_of_the_tree),
		cmocka_unit_test(a_missing_start_event_is_a_wrong_sum),
		cmocka_unit_test(several_ranks_have_the_bits_of_one),
		cmocka_unit_test(by_way_of_nodes_too),
		cmocka_unit_test(they_have_in_bf16_too),
		cmocka_unit_test(native_sums_are_near),
	};
	return cmocka_run_group_tests(tests, set_up, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no communicator for GPUs")
#endif
