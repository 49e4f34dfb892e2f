/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of model have in common: the tensor table, the memory, the batch, the losses. */
#include "trainer/model/model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/model_kind.h"

#define SLICE_ALIGN 256 /* bytes; the alignment that a GPU's matrix products are chosen for */
#define SLICE_LIMIT \
	(SIZE_MAX >> 2) /* more than any machine has; an absurd sum stops here and does not wrap */

static void *slice_bytes(struct slicer *slicer, size_t count, size_t size)
{
	void *p = slicer->base ? slicer->base + slicer->used : NULL;
	size_t bytes = count < SLICE_LIMIT / size
		? (count * size + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN
		: SLICE_LIMIT;
	slicer->used = bytes < SLICE_LIMIT - slicer->used ? slicer->used + bytes : SLICE_LIMIT;
	return p;
}

float *slice(struct slicer *slicer, size_t activations)
{
	return slice_bytes(slicer, activations, slicer->element);
}

float *slice_floats(struct slicer *slicer, size_t floats)
{
	return slice_bytes(slicer, floats, sizeof(float));
}

int model_add(struct model *model, const struct tensor *row, size_t *offset, struct err *err)
{
	if (tensor_table_add(&model->table, row, err) < 0)
		return err_prefix(err, "model");
	*offset = model->table.rows[model->table.count - 1].offset;
	return 0;
}

int model_check(const char *flag, int value, int limit, struct err *err)
{
	if (value < 1 || value > limit)
		return err_fail(err, EXIT_USAGE, "model: couldn't use %s %d: it must be from 1 to %d", flag,
			value, limit);
	return 0;
}

static const struct model_methods *methods_of(enum model_kind kind)
{
	switch (kind) {
	case MODEL_GPT2: return &model_gpt2;
	case MODEL_MLP: return &model_mlp;
	}
	return NULL;
}

struct model *model_create(const struct model_config *config, struct err *err)
{
	const struct model_methods *methods = methods_of(config->kind);
	if (!methods) {
		err_fail(err, EXIT_USAGE, "model: couldn't make a model of kind %d: no such kind",
			(int)config->kind);
		return NULL;
	}
	struct model *model = calloc(1, sizeof *model);
	if (!model) {
		err_set(err, "model: couldn't make the model: out of memory");
		return NULL;
	}
	model->config = *config;
	model->methods = methods;
	if (methods->build(model, err) < 0) {
		model_destroy(model);
		return NULL;
	}
	return model;
}

void model_destroy(struct model *model)
{
	if (!model)
		return;
	model_graph_drop(model);
	if (model->block)
		model->ops->device->release(model->ops->device, model->block);
	tensor_table_clear(&model->table);
	batchnorm_destroy(model->batchnorm);
	free(model->halves);
	free(model->kind);
	free(model);
}

const struct model_config *model_config_of(const struct model *model)
{
	return &model->config;
}

const struct tensor_table *model_tensors(const struct model *model)
{
	return &model->table;
}

int model_layers(const struct model *model)
{
	return model->table.rows[model->table.count - 1].layer + 1;
}

/* An op's int arguments must be able to hold all its indexes. */
static int check_batch(const struct ops_shapes *shapes, struct err *err)
{
	long long rows = (long long)shapes->batch * shapes->positions;
	if (shapes->batch < 1 || rows > INT_MAX)
		return err_fail(err, EXIT_USAGE,
			"model: couldn't use a microbatch of %d samples of %d positions: from 1 to %d "
			"positions in all are possible",
			shapes->batch, shapes->positions, INT_MAX);
	return 0;
}

/* Reserves device memory for the batch, and for what batch normalisation exchanges. */
static void lay_out_batch(struct model *model, const struct ops_shapes *shapes,
	struct slicer *slicer)
{
	size_t rows = (size_t)shapes->batch * (size_t)shapes->positions;
	model->sum = (double *)(void *)slice_floats(slicer, sizeof *model->sum / sizeof(float));
	model->placed.targets = (int32_t *)(void *)slice_floats(slicer, rows);
	if (model->config.kind == MODEL_GPT2)
		model->placed.tokens = (int32_t *)(void *)slice_floats(slicer, rows);
	else
		model->placed.inputs = slice(slicer, rows * (size_t)model->config.inputs);
	if (model->batchnorm)
		batchnorm_place(model->batchnorm, slice_floats(slicer, batchnorm_floats(model->batchnorm)));
}

static size_t lay_out(struct model *model, const struct ops_shapes *shapes, bool device_memory,
	size_t element, void *base)
{
	struct slicer slicer = { .base = base, .element = element };
	model->methods->lay_out(model, shapes->batch, &slicer);
	if (device_memory)
		lay_out_batch(model, shapes, &slicer);
	return slicer.used;
}

void model_shapes(const struct model *model, int batch, struct ops_shapes *shapes)
{
	model->methods->shapes(model, batch, shapes);
}

size_t model_activations(struct model *model, int batch, bool device_memory, size_t element)
{
	struct ops_shapes shapes;
	model->methods->shapes(model, batch, &shapes);
	return lay_out(model, &shapes, device_memory, element, NULL);
}

static int prepare_device_memory(struct model *model, const struct ops_shapes *shapes,
	struct err *err)
{
	size_t rows = (size_t)shapes->batch * (size_t)shapes->positions;
	model->halves = calloc(rows * (size_t)(model->config.inputs ? model->config.inputs : 1),
		sizeof *model->halves);
	return model->halves ? 0 : err_set(err, "model: couldn't prepare: out of memory");
}

int model_prepare(struct model *model, struct ops *ops, int batch, struct err *err)
{
	struct ops_shapes shapes;
	model->methods->shapes(model, batch, &shapes);
	if (check_batch(&shapes, err) < 0)
		return -1;
	if (ops->prepare(ops, &shapes, err) < 0
		|| (device_has_memory(ops->device) && prepare_device_memory(model, &shapes, err) < 0))
		return -1;
	size_t bytes = lay_out(model, &shapes, device_has_memory(ops->device), ops->element, NULL);
	model->ops = ops;
	model->block = ops->device->alloc(ops->device, bytes);
	if (!model->block && device_check(ops->device, err) < 0)
		return -1;
	if (!model->block)
		return err_set(err,
			"model: couldn't get %zu MB for the activations of %d samples: out of memory; a "
			"smaller --microbatch needs less, and a GPT-2 with --recompute block",
			bytes >> 20, batch);
	lay_out(model, &shapes, device_has_memory(ops->device), ops->element, model->block);
	model->batch = batch;
	return 0;
}

int model_join(struct model *model, struct comm *comm, struct err *err)
{
	return model->batchnorm ? batchnorm_join(model->batchnorm, comm, err) : 0;
}

void model_bind_cast(struct model *model, const float *weights, const float *master)
{
	model->weights = weights;
	if (model->batchnorm)
		batchnorm_bind(model->batchnorm, model->ops, weights, master);
}

void model_bind(struct model *model, const float *weights)
{
	model_bind_cast(model, weights, weights);
}

void model_use_graphs(struct model *model, bool use)
{
	model->use_graphs = use && model->ops->device->capture && !model->graphs_fail
		&& !model->batchnorm; /* that one's passes need the host */
}

void model_set_weights_wait(struct model *model, model_weights_wait *wait, void *arg)
{
	model->wait = wait;
	model->wait_arg = arg;
}

void model_wait_weights(const struct model *model, int layer)
{
	if (model->wait)
		model->wait(model->wait_arg, layer);
}

void model_settle(const struct model *model, float *master)
{
	if (model->batchnorm)
		batchnorm_settle(model->batchnorm, model->ops, master);
}

double model_waited(struct model *model)
{
	return model->batchnorm ? batchnorm_waited(model->batchnorm) : 0;
}

/* Inputs are activations, so they are cast to the compute type. */
static void place_inputs(struct model *model, const struct batch *batch)
{
	struct ops *ops = model->ops;
	size_t count = (size_t)batch->samples * (size_t)batch->features;
	for (size_t i = 0; ops->element == sizeof *model->halves && i < count; i++)
		model->halves[i] = bytes_float_to_bf16(batch->inputs[i]);
	ops->device->put(ops->device, model->placed.inputs,
		ops->element == sizeof *model->halves ? (const void *)model->halves : batch->inputs,
		count * ops->element);
}

/* Returns the batch where ops can read it: the caller's own where ops use the host's memory. */
static const struct batch *place(struct model *model, const struct batch *batch)
{
	struct ops *ops = model->ops;
	struct batch *placed = &model->placed;
	size_t rows = (size_t)batch->samples * (size_t)batch->positions;
	if (!device_has_memory(ops->device))
		return batch;
	placed->samples = batch->samples;
	placed->positions = batch->positions;
	placed->features = batch->features;
	ops->device->put(ops->device, placed->targets, batch->targets, rows * sizeof *batch->targets);
	if (batch->tokens)
		ops->device->put(ops->device, placed->tokens, batch->tokens, rows * sizeof *batch->tokens);
	else
		place_inputs(model, batch);
	return placed;
}

/* Runs a pass, and returns the number of targets that count; the losses of the others are 0. */
static int64_t run(struct model *model, const struct batch *batch, const struct model_pass *pass,
	double *loss)
{
	size_t targets = model->methods->targets(batch);
	const struct batch *placed = place(model, batch);
	model->valid = 0;
	for (size_t i = 0; i < targets; i++)
		model->valid += batch->targets[i] >= 0;
	if (model->use_graphs && pass->grads)
		model_graph_run(model, placed, pass);
	else
		model->methods->run(model, placed, pass);
	model->ops->sum_losses(model->ops, loss, model->losses, targets, pass->accumulate);
	return model->valid;
}

void model_loss(struct model *model, const struct batch *batch, double *loss_sum, int64_t *valid)
{
	struct ops *ops = model->ops;
	double *loss = device_has_memory(ops->device) ? model->sum : loss_sum;
	*valid = run(model, batch, &(struct model_pass) { 0 }, loss);
	if (device_has_memory(ops->device))
		ops->device->copy_out(ops->device, loss_sum, loss, sizeof *loss);
}

void model_train(struct model *model, const struct batch *batch, float *grads, int accumulate,
	double *loss, int64_t *valid, model_ready *ready, void *arg)
{
	const struct model_pass pass = { .grads = grads,
		.accumulate = accumulate,
		.ready = ready,
		.arg = arg };
	*valid = run(model, batch, &pass, loss);
}

void model_absent(struct model *model, model_ready *ready, void *arg)
{
	const struct model_pass pass = { .ready = ready, .arg = arg };
	if (model->methods->absent)
		model->methods->absent(model, &pass);
	else if (ready)
		ready(arg, model_layers(model) - 1);
}

double model_flops(const struct model *model)
{
	return model->methods->flops(model);
}

char *model_config_json(const struct model *model)
{
	json_t *json = model->methods->config_json(model);
	char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
	json_decref(json);
	return text;
}
