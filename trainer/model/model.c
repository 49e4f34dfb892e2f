/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of model have in common: the tensor table, the memory, the batch, the losses. */
#include "trainer/model/model.h"

#include <limits.h>
#include <stdlib.h>

#include "common/record.h"
#include "common/bytes.h"
#include "trainer/model/model_graph.h"
#include "trainer/model/model_kind.h"

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

size_t model_memory(const struct model *model)
{
	return model->block_bytes;
}

int model_prepare(struct model *model, struct ops *ops, int batch, struct err *err)
{
	struct device *device = ops->device;
	struct ops_shapes shapes;
	model->methods->shapes(model, batch, &shapes);
	if (check_batch(&shapes, err) < 0 || ops->prepare(ops, &shapes, err) < 0)
		return -1;
	size_t halves =
		ops->element == sizeof *model->halves ? (size_t)batch * (size_t)model->config.inputs : 0;
	model->halves = calloc(halves + 1, sizeof *model->halves);
	if (!model->halves)
		return err_set(err, "model: couldn't prepare: out of memory");
	size_t bytes = lay_out(model, &shapes, device_has_memory(device), ops->element, NULL);
	model->ops = ops;
	model->block_bytes = bytes;
	model->block = device->alloc(device, bytes);
	if (!model->block && device_check(device, err) < 0)
		return -1;
	if (!model->block)
		return err_set(err,
			"model: couldn't get %zu MB for the activations of %d samples: out of memory; a "
			"smaller --microbatch needs less, and a GPT-2 with --recompute block",
			bytes >> 20, batch);
	lay_out(model, &shapes, device_has_memory(device), ops->element, model->block);
	return 0;
}

int model_join(struct model *model, struct comm *comm, const int *order, struct err *err)
{
	return model->batchnorm ? batchnorm_join(model->batchnorm, comm, order, err) : 0;
}

void model_bind(struct model *model, const float *weights, const float *master)
{
	model->weights = weights;
	if (model->batchnorm)
		batchnorm_bind(model->batchnorm, model->ops, weights, master);
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

void model_set_abandon(struct model *model, model_abandon *abandon, void *arg)
{
	model->abandon = abandon;
	model->abandon_arg = arg;
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

/* Returns the batch where ops can read it: the caller's own where ops use the host's memory. Inputs
 * are activations, so they are cast to the compute type. */
static const struct batch *place(struct model *model, const struct batch *batch)
{
	struct device *device = model->ops->device;
	struct batch *placed = &model->placed;
	size_t rows = (size_t)batch->samples * (size_t)batch->positions,
		   inputs = (size_t)batch->samples * (size_t)batch->features;
	bool halves = model->ops->element == sizeof *model->halves;
	if (!device_has_memory(device))
		return batch;
	placed->samples = batch->samples;
	placed->positions = batch->positions;
	placed->features = batch->features;
	device->put(device, placed->targets, batch->targets, rows * sizeof *batch->targets);
	if (batch->tokens)
		device->put(device, placed->tokens, batch->tokens, rows * sizeof *batch->tokens);
	for (size_t i = 0; halves && i < inputs; i++)
		model->halves[i] = bytes_float_to_bf16(batch->inputs[i]);
	if (batch->inputs)
		device->put(device, placed->inputs, halves ? (const void *)model->halves : batch->inputs,
			inputs * model->ops->element);
	return placed;
}

/* Runs a pass, and returns the number of targets that count; the losses of the others are 0. */
static int64_t run(struct model *model, const struct batch *batch, const struct model_pass *pass,
	double *loss)
{
	size_t targets = (size_t)batch->samples * (size_t)batch->positions;
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
	struct device *device = model->ops->device;
	double *loss = device_has_memory(device) ? model->sum : loss_sum;
	*valid = run(model, batch, &(struct model_pass) { 0 }, loss);
	if (device_has_memory(device))
		device->copy_out(device, loss_sum, loss, sizeof *loss);
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
	else
		model_tell_ready(&pass, tensor_table_layers(&model->table) - 1);
}

double model_flops(const struct model *model)
{
	return model->methods->flops(model);
}

char *model_config_json(const struct model *model)
{
	json_t *json = model->methods->config_json(model);
	char *text = record_dump(json, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	json_decref(json);
	return text;
}
