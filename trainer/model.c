/* SPDX-License-Identifier: Apache-2.0 */
/* What all models have in common: their table, their memory, their losses. */
#include "trainer/model.h"

#include <limits.h>
#include <stdlib.h>

#include "trainer/model_kind.h"

#define SLICE_ALIGN 16              /* floats: a cache line */
#define SLICE_LIMIT (SIZE_MAX >> 4) /* more than any machine has; an absurd sum stops here instead of wrapping */

float *slice(struct slicer *slicer, size_t floats)
{
	float *p = slicer->base ? slicer->base + slicer->used : NULL;
	slicer->used += (floats + SLICE_ALIGN - 1) / SLICE_ALIGN * SLICE_ALIGN;
	if (slicer->used > SLICE_LIMIT)
		slicer->used = SLICE_LIMIT;
	return p;
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
		return err_fail(err, EXIT_USAGE, "model: couldn't use %s %d: it must be from 1 to %d", flag, value, limit);
	return 0;
}

static const struct model_methods *methods_of(enum model_kind kind)
{
	switch (kind) {
	case MODEL_GPT2:
		return &model_gpt2;
	case MODEL_MLP:
		return &model_mlp;
	}
	return NULL;
}

struct model *model_create(const struct model_config *config, struct err *err)
{
	const struct model_methods *methods = methods_of(config->kind);
	if (!methods) {
		err_fail(err, EXIT_USAGE, "model: couldn't make a model of kind %d: no such kind", (int)config->kind);
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
	if (model->block)
		model->ops->release(model->ops, model->block);
	tensor_table_clear(&model->table);
	batchnorm_destroy(model->batchnorm);
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

/* No index of an op may pass what its int arguments can say. */
static int check_batch(const struct ops_shapes *shapes, struct err *err)
{
	long long rows = (long long)shapes->batch * shapes->positions;
	if (shapes->batch < 1 || rows > INT_MAX)
		return err_fail(err, EXIT_USAGE, "model: couldn't use a microbatch of %d samples of %d positions: "
			"from 1 to %d positions in all are possible", shapes->batch, shapes->positions, INT_MAX);
	return 0;
}

int model_prepare(struct model *model, struct ops *ops, int batch, struct err *err)
{
	struct ops_shapes shapes;
	model->methods->shapes(model, batch, &shapes);
	if (check_batch(&shapes, err) < 0)
		return -1;
	if (ops->prepare(ops, &shapes, err) < 0)
		return -1;
	size_t bytes = model->methods->lay_out(model, batch, NULL) * sizeof(float);
	model->ops = ops;
	model->block = ops->alloc(ops, bytes);
	if (!model->block)
		return err_set(err, "model: couldn't get %zu MB for the activations of %d samples: out of memory; a smaller "
			"microbatch needs less", bytes >> 20, batch);
	model->methods->lay_out(model, batch, model->block);
	model->batch = batch;
	return 0;
}

int model_join(struct model *model, struct comm *comm, struct err *err)
{
	return model->batchnorm ? batchnorm_join(model->batchnorm, comm, err) : 0;
}

void model_bind(struct model *model, const float *weights)
{
	model->weights = weights;
	if (model->batchnorm)
		batchnorm_bind(model->batchnorm, weights);
}

void model_set_gate(struct model *model, model_gate *gate, void *arg)
{
	model->gate = gate;
	model->gate_arg = arg;
}

void model_need(const struct model *model, int layer)
{
	if (model->gate)
		model->gate(model->gate_arg, layer);
}

void model_settle(const struct model *model, float *weights)
{
	if (model->batchnorm)
		batchnorm_settle(model->batchnorm, weights);
}

double model_waited(struct model *model)
{
	return model->batchnorm ? batchnorm_waited(model->batchnorm) : 0;
}

static void run(struct model *model, const struct batch *batch, const struct model_pass *pass, double *loss_sum,
	int64_t *valid)
{
	size_t targets = model->methods->targets(batch);
	double sum = 0;
	int64_t counted = 0;
	model->methods->run(model, batch, pass);
	for (size_t i = 0; i < targets; i++)
		if (batch->targets[i] >= 0) {
			sum += (double)model->losses[i];
			counted++;
		}
	*loss_sum = sum;
	*valid = counted;
}

void model_loss(struct model *model, const struct batch *batch, double *loss_sum, int64_t *valid)
{
	run(model, batch, &(struct model_pass){ 0 }, loss_sum, valid);
}

void model_train(struct model *model, const struct batch *batch, float *grads, int accumulate, double *loss_sum,
	int64_t *valid, model_ready *ready, void *arg)
{
	const struct model_pass pass = { .grads = grads, .accumulate = accumulate, .ready = ready, .arg = arg };
	run(model, batch, &pass, loss_sum, valid);
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
