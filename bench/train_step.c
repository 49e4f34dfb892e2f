/* SPDX-License-Identifier: Apache-2.0 */
/* Times training steps of a GPT-2 on the CPU for train-cpu.py: forward, backward, gradient norm,
 * AdamW.
 *     train_step LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH
 * Reads commands, one a line, and answers each with one line:
 *     steps N  ->  the seconds of each of N steps
 *     product  ->  the rate of the matrix product alone, in GFLOP/s
 *     flops    ->  floating-point operations of a step, and the number of parameters */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "trainer/cpu/gemm.h"
#include "trainer/data/batch.h"
#include "trainer/model/model.h"
#include "trainer/state/optimizer.h"

struct run {
	struct ops *ops;
	struct model *model;
	const struct tensor_table *table;
	struct batch batch;
	struct adamw_state state;
	float *grads;
	double *squares;
	uint64_t step;
};

static const struct optimizer_config schedule = { .learning_rate = 3e-4,
	.minimal_learning_rate = 3e-4,
	.steps = 1000,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 1 };

static void die(const char *text)
{
	fprintf(stderr, "train_step: %s\n", text);
	exit(1);
}

static void *get(struct run *r, size_t bytes)
{
	void *p = r->ops->device->alloc(r->ops->device, bytes);

	if (!p)
		die("out of memory");
	return p;
}

static void open_run(struct run *r, const struct model_config *config, int batch)
{
	struct err err;
	uint32_t random = 1;
	int tokens = batch * config->context;

	r->ops = ops_cpu_create(false, &err);
	r->model = r->ops ? model_create(config, &err) : NULL;
	if (!r->model || model_prepare(r->model, r->ops, batch, &err))
		die(err.text);
	r->table = model_tensors(r->model);
	r->state.weights = get(r, r->table->elements * sizeof(float));
	r->state.m = get(r, r->table->elements * sizeof(float));
	r->state.v = get(r, r->table->elements * sizeof(float));
	r->grads = get(r, r->table->elements * sizeof(float));
	r->squares = get(r, (r->table->elements / NORM_BLOCK + 1) * sizeof(double));
	tensor_table_init(r->table, 1, r->state.weights);
	model_bind(r->model, r->state.weights, r->state.weights);
	r->batch = (struct batch) { .samples = batch,
		.positions = config->context,
		.tokens = get(r, (size_t)tokens * sizeof(int32_t)),
		.targets = get(r, (size_t)tokens * sizeof(int32_t)) };
	for (int i = 0; i < tokens; i++) {
		random = random * 1664525u + 1013904223u;
		r->batch.tokens[i] = (int32_t)((random >> 8) % (uint32_t)config->vocabulary);
		r->batch.targets[i ? i - 1 : tokens - 1] = r->batch.tokens[i];
	}
}

static double norm_of(struct run *r)
{
	double sum = 0;

	for (int i = 0; i < r->table->count; i++) {
		const struct tensor *row = &r->table->rows[i];

		r->ops->square_sums(r->ops, r->squares, r->grads + row->offset, row->count);
		for (size_t b = 0; b < (row->count + NORM_BLOCK - 1) / NORM_BLOCK; b++)
			sum += r->squares[b];
	}
	return sqrt(sum);
}

/* Returns the seconds that one step takes. */
static double train(struct run *r)
{
	double loss, start = clock_now();
	int64_t valid = (int64_t)r->batch.samples * r->batch.positions;
	const struct zero_shard all = { 0, 0, r->table->elements };

	optimizer_begin(&schedule, ++r->step, valid, r->ops->params);
	model_train(r->model, &r->batch, r->grads, 0, &loss, &valid, NULL, NULL);
	if (!optimizer_clip(&schedule, loss, norm_of(r), r->ops->params))
		die("the loss is not finite");
	optimizer_update(r->ops, r->table, &all, 1, &r->state, &r->state, r->grads);
	return clock_now() - start;
}

/* The best rate of several large products, in GFLOP/s. */
static double gemm_rate(struct run *r)
{
	const int size = 3072;
	size_t bytes = (size_t)size * (size_t)size * sizeof(float);
	float *a = get(r, bytes), *b = get(r, bytes), *c = get(r, bytes);
	double best = INFINITY;

	for (int i = 0; i < 4; i++) {
		double start = clock_now();

		gemm_run(&(struct gemm) { .a = a, .b = b, .c = c, .m = size, .n = size, .k = size }, NULL,
			NULL);
		best = fmin(best, clock_now() - start);
	}
	r->ops->device->release(r->ops->device, a);
	r->ops->device->release(r->ops->device, b);
	r->ops->device->release(r->ops->device, c);
	return 2.0 * size * size * size / best * 1e-9;
}

int main(int argc, char **argv)
{
	struct run r = { 0 };
	char line[100];

	if (argc != 7)
		die("usage: train_step LAYERS WIDTH HEADS CONTEXT VOCABULARY BATCH");
	open_run(&r,
		&(struct model_config) { .kind = MODEL_GPT2,
			.layers = atoi(argv[1]),
			.width = atoi(argv[2]),
			.heads = atoi(argv[3]),
			.context = atoi(argv[4]),
			.vocabulary = atoi(argv[5]) },
		atoi(argv[6]));
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "steps ", 6)) {
			for (long i = atol(line + 6); i > 0; i--)
				printf("%.6f ", train(&r));
			printf("\n");
		} else if (!strncmp(line, "product", 7)) {
			printf("%.1f\n", gemm_rate(&r));
		} else if (!strncmp(line, "flops", 5)) {
			printf("%.0f %zu\n", model_flops(r.model) * r.batch.samples, r.table->parameters);
		}
		fflush(stdout);
	}
	model_destroy(r.model);
	r.ops->destroy(r.ops);
	return 0;
}
