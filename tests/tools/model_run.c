/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a model on weights and batches out of a file, for a comparison with another implementation:
 *     model_run [--plain] INPUT OUTPUT
 * Both files are records: name (96 bytes, NUL-padded), size (uint64), data; little-endian.
 * INPUT: config (int32: kind, layers, width, heads, context, vocabulary, inputs, hidden, classes,
 * samples, batchnorm, steps), schedule (float64: learning rate, minimum, warmup, beta1, beta2,
 * epsilon, decay, clip), one record of fp32 a tensor, and of all steps tokens (int32) or inputs
 * (fp32), and targets (int32). OUTPUT: loss (float64), the gradients of the first batch a tensor
 * (fp32), curve and norms (float64 a step), the loss of the first batch at the end without training
 * (float64), and the statistics at the end a tensor (fp32, a counter as int64). */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "trainer/data/batch.h"
#include "trainer/model/model.h"
#include "trainer/state/optimizer.h"

#define NAME_SIZE 96
#define RECORDS_MAX 1000

struct record {
	char name[NAME_SIZE];
	uint64_t size;
	void *data;
};

struct records {
	struct record all[RECORDS_MAX];
	int count;
};

struct setup {
	int32_t kind, layers, width, heads, context, vocabulary, inputs, hidden, classes, samples,
		batchnorm, steps;
};

struct schedule {
	double learning_rate, minimum, warmup, beta1, beta2, epsilon, weight_decay, clip;
};

struct run {
	struct setup setup;
	struct optimizer_config schedule;
	struct model *model;
	const struct tensor_table *table;
	struct ops *ops;
	float *weights, *grads, *m, *v;
};

static void die(const char *what)
{
	fprintf(stderr, "model_run: couldn't %s\n", what);
	exit(1);
}

static void read_records(const char *path, struct records *records)
{
	AUTO_FCLOSE FILE *file = fopen(path, "rb");
	if (!file)
		die("open the input");
	struct record r;
	while (fread(r.name, sizeof r.name, 1, file) == 1) {
		if (records->count == RECORDS_MAX || fread(&r.size, sizeof r.size, 1, file) != 1
			|| r.size > (1ull << 32))
			die("read a record");
		r.data = malloc(r.size);
		if (!r.data || fread(r.data, 1, r.size, file) != r.size)
			die("read a record's data");
		r.name[NAME_SIZE - 1] = '\0';
		records->all[records->count++] = r;
	}
}

static const void *find(const struct records *records, const char *name, size_t size)
{
	for (int i = 0; i < records->count; i++)
		if (strcmp(records->all[i].name, name) == 0 && records->all[i].size == size)
			return records->all[i].data;
	fprintf(stderr, "model_run: no %s of %zu bytes in the input\n", name, size);
	exit(1);
}

static void write_record(FILE *file, const char *name, const void *data, uint64_t size)
{
	char padded[NAME_SIZE] = "";
	snprintf(padded, sizeof padded, "%s", name);
	if (fwrite(padded, sizeof padded, 1, file) != 1 || fwrite(&size, sizeof size, 1, file) != 1
		|| fwrite(data, 1, size, file) != size)
		die("write a record");
}

static struct model *create(const struct setup *s, struct err *err)
{
	const struct model_config config = { .kind = s->kind ? MODEL_MLP : MODEL_GPT2,
		.layers = s->layers,
		.width = s->width,
		.heads = s->heads,
		.context = s->context,
		.vocabulary = s->vocabulary,
		.inputs = s->inputs,
		.hidden = s->hidden,
		.classes = s->classes,
		.batchnorm = s->batchnorm };
	return model_create(&config, err);
}

static float *arena(struct run *run)
{
	float *p = run->ops->device->alloc(run->ops->device, run->table->elements * sizeof *p);
	if (!p)
		die("get memory");
	return p;
}

static void open_run(struct run *run, const struct records *in, bool plain)
{
	struct err err = { 0 };
	const struct schedule *s = find(in, "schedule", sizeof *s);
	memcpy(&run->setup, find(in, "config", sizeof run->setup), sizeof run->setup);
	run->schedule = (struct optimizer_config) { .learning_rate = s->learning_rate,
		.minimal_learning_rate = s->minimum,
		.warmup = (uint64_t)s->warmup,
		.steps = (uint64_t)run->setup.steps,
		.beta1 = s->beta1,
		.beta2 = s->beta2,
		.epsilon = s->epsilon,
		.weight_decay = s->weight_decay,
		.clip = s->clip };
	run->model = create(&run->setup, &err);
	run->ops = ops_cpu_create(plain, &err);
	if (!run->model || !run->ops
		|| model_prepare(run->model, run->ops, run->setup.samples, &err) < 0)
		die(err.text);
	run->table = model_tensors(run->model);
	run->weights = arena(run);
	run->grads = arena(run);
	run->m = arena(run);
	run->v = arena(run);
	for (int i = 0; i < run->table->count; i++) {
		const struct tensor *row = &run->table->rows[i];
		const size_t size = row->count * sizeof(float);
		memcpy(run->weights + row->offset, find(in, row->name, size), size);
	}
	model_bind(run->model, run->weights, run->weights);
}

static struct batch batch_of(const struct run *run, const struct records *in, int step)
{
	const struct setup *s = &run->setup;
	const size_t positions = s->kind ? 1 : (size_t)s->context,
				 all = (size_t)(s->steps * s->samples) * positions;
	const size_t first = (size_t)(step * s->samples) * positions;
	struct batch b = { .samples = s->samples,
		.positions = (int)positions,
		.features = s->kind ? s->inputs : 0 };
	b.targets = (int32_t *)find(in, "targets", all * sizeof(int32_t)) + first;
	if (s->kind)
		b.inputs = (float *)find(in, "inputs", all * (size_t)s->inputs * sizeof(float))
			+ first * (size_t)s->inputs;
	else
		b.tokens = (int32_t *)find(in, "tokens", all * sizeof(int32_t)) + first;
	return b;
}

static int64_t valid_targets(const struct batch *batch)
{
	int64_t valid = 0;
	for (int i = 0; i < batch->samples * batch->positions; i++)
		valid += batch->targets[i] >= 0;
	return valid;
}

static double gradient_norm(struct run *run)
{
	double sum = 0;
	for (int i = 0; i < run->table->count; i++) {
		const struct tensor *row = &run->table->rows[i];
		const size_t blocks = (row->count + NORM_BLOCK - 1) / NORM_BLOCK;
		AUTO_FREE double *sums = malloc(blocks * sizeof *sums);
		run->ops->square_sums(run->ops, sums, run->grads + row->offset, row->count);
		for (size_t b = 0; b < blocks; b++)
			sum += sums[b];
	}
	return sqrt(sum);
}

/* One step; returns its mean loss. */
static double train_step(struct run *run, const struct batch *batch, uint64_t step, double *norm)
{
	double loss;
	int64_t valid;
	optimizer_begin(&run->schedule, step, valid_targets(batch), run->ops->params);
	model_train(run->model, batch, run->grads, 0, &loss, &valid, NULL, NULL);
	loss /= (double)valid;
	*norm = gradient_norm(run);
	optimizer_clip(&run->schedule, loss, *norm, run->ops->params);
	return loss;
}

/* Of the parameters, or of the others. */
static void write_tensors(const struct run *run, bool parameters, const float *from, FILE *file)
{
	for (int i = 0; i < run->table->count; i++) {
		const struct tensor *row = &run->table->rows[i];
		if ((row->role == TENSOR_PARAMETER) == parameters)
			write_record(file, row->name, from + row->offset, row->count * sizeof(float));
	}
}

static void write_end(struct run *run, const struct records *in, FILE *out)
{
	const struct batch batch = batch_of(run, in, 0);
	double loss;
	int64_t valid;
	model_loss(run->model, &batch, &loss, &valid);
	loss /= (double)valid;
	write_record(out, "evaluated", &loss, sizeof loss);
	write_tensors(run, false, run->weights, out);
}

static void train(struct run *run, const struct records *in, FILE *out)
{
	const size_t steps = (size_t)run->setup.steps;
	AUTO_FREE double *curve = calloc(steps, sizeof *curve);
	AUTO_FREE double *norms = calloc(steps, sizeof *norms);
	const struct adamw_state state = { run->weights, run->m, run->v };
	const struct zero_shard all = { 0, 0, run->table->elements };
	for (size_t i = 0; i < steps; i++) {
		const struct batch batch = batch_of(run, in, (int)i);
		curve[i] = train_step(run, &batch, i + 1, &norms[i]);
		if (i == 0) {
			write_record(out, "loss", curve, sizeof *curve);
			write_tensors(run, true, run->grads, out);
		}
		optimizer_update(run->ops, run->table, &all, 1, &state, &state, run->grads);
		model_settle(run->model, run->weights);
		model_bind(run->model, run->weights, run->weights);
	}
	write_record(out, "curve", curve, steps * sizeof *curve);
	write_record(out, "norms", norms, steps * sizeof *norms);
}

static void close_run(struct run *run)
{
	float *arenas[] = { run->weights, run->grads, run->m, run->v };
	for (int i = 0; i < 4; i++)
		run->ops->device->release(run->ops->device, arenas[i]);
	model_destroy(run->model);
	run->ops->destroy(run->ops);
}

int main(int argc, char **argv)
{
	static struct records in;
	struct run run = { 0 };
	const bool plain = argc == 4 && strcmp(argv[1], "--plain") == 0;
	if (argc != 3 && !plain)
		die("start: usage: model_run [--plain] INPUT OUTPUT");
	read_records(argv[argc - 2], &in);
	AUTO_FCLOSE FILE *out = fopen(argv[argc - 1], "wb");
	if (!out)
		die("open the output");
	open_run(&run, &in, plain);
	train(&run, &in, out);
	write_end(&run, &in, out);
	printf("%s\n", run.ops->name);
	close_run(&run);
	for (int i = 0; i < in.count; i++)
		free(in.all[i].data);
	return 0;
}
