/* SPDX-License-Identifier: Apache-2.0 */
/* A training on the GPU's operations, whose gradients never change: what its state is follows from
 * its steps. Include after cmocka.h. */
#ifndef MUSTER_TESTS_DEVICE_TRAINING_H
#define MUSTER_TESTS_DEVICE_TRAINING_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/fake_cublas.h"
#include "tests/unit/trainer/state/device_state.h"
#include "tests/unit/trainer/state/odd_table.h"
#include "trainer/cuda/host/ops_cuda.h"
#include "trainer/state/layout.h"
#include "trainer/state/optimizer.h"

struct device_training {
	struct tensor_table table;
	struct ops *ops;
	struct state state;
	float *grads;
};

static const struct gpu device_training_gpu = { .name = "Fake",
	.capability = 90,
	.processors = 132 };

/* Before the state goes to the device; `rows` of a matrix make the table as large as is wanted.
 * With `own`, of those shards. */
static inline void device_training_make(struct device_training *t, int64_t rows,
	enum gemm_mode mode, const struct zero_shard *own, size_t own_count)
{
	struct err err = { 0 };
	*t = (struct device_training) { 0 };
	odd_table_add(&t->table, 1, 33, 1);
	odd_table_add(&t->table, rows, 77, rows + 5);
	odd_table_add(&t->table, 5, 7, 8);
	t->ops = ops_cuda_create_over(&fake_cublas_library, &device_training_gpu, mode, &err);
	if (!t->ops || state_alloc(&t->state, t->ops, &t->table, own, own_count, &err) < 0)
		fail_msg("%s", err.text);
	state_init(&t->state, 7);
}

static inline void device_training_upload(struct device_training *t)
{
	struct err err = { 0 };
	size_t elements = t->table.elements;
	float *grads = calloc(elements, sizeof *grads);
	for (size_t i = 0; i < elements; i++)
		grads[i] = sinf((float)i);
	t->grads = t->ops->device->alloc(t->ops->device, elements * sizeof *grads);
	if (state_upload(&t->state, &err) < 0)
		fail_msg("%s", err.text);
	t->ops->device->copy_in(t->ops->device, t->grads, grads, elements * sizeof *grads);
	free(grads);
}

static inline void device_training_begin(struct device_training *t, int64_t rows,
	enum gemm_mode mode)
{
	device_training_make(t, rows, mode, NULL, 0);
	device_training_upload(t);
}

static inline void device_training_end(struct device_training *t)
{
	struct err err = { 0 };
	if (device_check(t->ops->device, &err) < 0)
		print_message("# %s\n", err.text);
	t->ops->device->release(t->ops->device, t->grads);
	state_free(&t->state);
	t->ops->destroy(t->ops);
	tensor_table_clear(&t->table);
}

/* The host does not wait. */
static inline void device_training_step(struct device_training *t)
{
	static const struct optimizer_config schedule = { .learning_rate = 0.1,
		.minimal_learning_rate = 0.01,
		.steps = 1000,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.epsilon = 1e-8,
		.weight_decay = 0.1,
		.clip = 1 };
	optimizer_begin(&schedule, ++t->state.step, 1, t->ops->params);
	optimizer_clip(&schedule, 1, 2, t->ops->params);
	ops_put_params(t->ops);
	state_update(&t->state, t->grads, true);
}

/* The same, up to that step, read when all is done; the caller's. */
static inline float *device_training_at(int64_t rows, enum gemm_mode mode, uint64_t step)
{
	struct device_training t;
	device_training_begin(&t, rows, mode);
	while (t.state.step < step)
		device_training_step(&t);
	float *arenas = device_state_read(&t.state);
	device_training_end(&t);
	return arenas;
}

/* Elements of a buffer that are not those of the arenas, as far as the layout keeps them. */
static inline size_t device_training_differs(const struct layout *layout, const float *buffer,
	const float *arenas)
{
	size_t differs = 0;
	for (size_t s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++)
			for (size_t k = layout->kept[s][i].first; k < layout->kept[s][i].end; k++)
				differs += memcmp(&buffer[s * layout->table->elements + k],
							   &arenas[s * layout->table->elements + k], sizeof *buffer)
					!= 0;
	return differs;
}

#endif
