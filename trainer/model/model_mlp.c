/* SPDX-License-Identifier: Apache-2.0 */
/* A Linear–ReLU–Linear network over a table's columns, with classes as targets. Tensors are named
 * as in PyTorch's nn.Sequential(nn.Linear, nn.ReLU, nn.Linear): 0.weight, 0.bias, 2.weight, 2.bias;
 * with nn.BatchNorm1d after the first layer that is number 1, and the last layer number 3. The
 * weights are [in, out], the transpose of nn.Linear's; config.json says so. Initial values are
 * nn.Linear's: uniform in ± 1/sqrt(inputs). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/model/model_kind.h"
#include "common/record.h"

#define SIZE_LIMIT (1 << 24)

struct mlp {
	size_t weight_0, bias_0, weight_2, bias_2; /* of the first and the last layer */
	float *before;                             /* [M, hidden] before normalisation; NULL without */
	float *hidden;                             /* [M, hidden] after ReLU */
	float *dhidden;                            /* [M, hidden] */
	float *logits;                             /* [M, classes], then their gradient */
};

static int add_linear(struct model *model, int index, int layer, int inputs, int outputs,
	size_t *weight, size_t *bias, struct err *err)
{
	const float bound = (float)(1.0 / sqrt(inputs));
	struct tensor matrix = { .dims = 2,
		.shape = { inputs, outputs },
		.decay = true,
		.layer = layer,
		.init = TENSOR_UNIFORM,
		.init_std = bound };
	struct tensor vector = { .dims = 1,
		.shape = { outputs },
		.layer = layer,
		.init = TENSOR_UNIFORM,
		.init_std = bound };
	snprintf(matrix.name, sizeof matrix.name, "%d.weight", index);
	snprintf(vector.name, sizeof vector.name, "%d.bias", index);
	if (model_add(model, &matrix, weight, err) < 0)
		return -1;
	return model_add(model, &vector, bias, err);
}

static int add_vector(struct model *model, const char *name, int count, enum tensor_init init,
	enum tensor_role role, size_t *offset, struct err *err)
{
	struct tensor row = { .dims = 1, .shape = { count }, .layer = 1, .init = init, .role = role };
	snprintf(row.name, sizeof row.name, "1.%s", name);
	return model_add(model, &row, offset, err);
}

/* Starts as nn.BatchNorm1d does: as the identity. */
static int add_batchnorm(struct model *model, int width, struct err *err)
{
	struct batchnorm_tensors at;
	if (add_vector(model, "weight", width, TENSOR_ONE, TENSOR_PARAMETER, &at.gamma, err) < 0
		|| add_vector(model, "bias", width, TENSOR_ZERO, TENSOR_PARAMETER, &at.beta, err) < 0
		|| add_vector(model, "running_mean", width, TENSOR_ZERO, TENSOR_STATISTIC, &at.running_mean,
			   err)
			< 0
		|| add_vector(model, "running_var", width, TENSOR_ONE, TENSOR_STATISTIC, &at.running_var,
			   err)
			< 0
		|| add_vector(model, "num_batches_tracked", 2, TENSOR_ZERO, TENSOR_COUNTER, &at.batches,
			   err)
			< 0)
		return -1;
	model->batchnorm = batchnorm_create(&at, width, err);
	return model->batchnorm ? 0 : -1;
}

static int build(struct model *model, struct err *err)
{
	const struct model_config *c = &model->config;
	if (model_check("--inputs", c->inputs, SIZE_LIMIT, err) < 0
		|| model_check("--hidden", c->hidden, SIZE_LIMIT, err) < 0
		|| model_check("--classes", c->classes, SIZE_LIMIT, err) < 0)
		return -1;
	struct mlp *mlp = model->kind = calloc(1, sizeof *mlp);
	if (!mlp)
		return err_set(err, "model: couldn't make the model: out of memory");
	if (add_linear(model, c->batchnorm ? 3 : 2, 0, c->hidden, c->classes, &mlp->weight_2,
			&mlp->bias_2, err)
		< 0)
		return -1;
	if (add_linear(model, 0, 1, c->inputs, c->hidden, &mlp->weight_0, &mlp->bias_0, err) < 0)
		return -1;
	return c->batchnorm ? add_batchnorm(model, c->hidden, err) : 0;
}

static void shapes(const struct model *model, int batch, struct ops_shapes *shapes)
{
	const struct model_config *c = &model->config;
	*shapes = (struct ops_shapes) { .batch = batch,
		.positions = 1,
		.width = c->inputs,
		.hidden = c->hidden,
		.vocabulary = c->classes };
}

static void lay_out(struct model *model, int batch, struct slicer *slicer)
{
	struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	const size_t M = (size_t)batch;
	mlp->before = c->batchnorm ? slice(slicer, M * (size_t)c->hidden) : NULL;
	mlp->hidden = slice(slicer, M * (size_t)c->hidden);
	mlp->dhidden = slice(slicer, M * (size_t)c->hidden);
	mlp->logits = slice(slicer, M * (size_t)c->classes);
	model->losses = slice_floats(slicer, M);
}

static void backward_last(struct model *model, const struct batch *batch,
	const struct model_pass *pass)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	model->ops->linear_backward_weight(model->ops, pass->grads + mlp->weight_2,
		pass->grads + mlp->bias_2, mlp->hidden, mlp->logits, batch->samples, c->hidden, c->classes,
		pass->accumulate);
	model_tell_ready(pass, 0);
}

/* What normalisation sends to the other ranks travels while the last layer's gradients are
 * computed. So it is queued before their bucket, and absent() must keep that order. */
static void backward(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct ops *ops = model->ops;
	float *grads = pass->grads;
	const int M = batch->samples;
	if (!model->batchnorm)
		backward_last(model, batch, pass);
	ops->linear_backward_input_relu(ops, mlp->dhidden, mlp->logits,
		model_weight(model, mlp->weight_2), mlp->hidden, M, c->hidden, c->classes);
	if (model->batchnorm) {
		batchnorm_backward_begin(model->batchnorm, ops, grads, mlp->dhidden, mlp->before,
			batch->targets, M, pass->accumulate);
		backward_last(model, batch, pass);
		batchnorm_backward_end(model->batchnorm, ops, mlp->dhidden, mlp->dhidden, mlp->before,
			batch->targets, M);
	}
	ops->linear_backward_weight(ops, grads + mlp->weight_0, grads + mlp->bias_0, batch->inputs,
		mlp->dhidden, M, c->inputs, c->hidden, pass->accumulate);
	model_tell_ready(pass, 1);
}

static void absent(struct model *model, const struct model_pass *pass)
{
	if (model->batchnorm) {
		batchnorm_absent_forward(model->batchnorm, model->ops);
		batchnorm_absent_begin(model->batchnorm, model->ops);
	}
	model_tell_ready(pass, 0);
	if (model->batchnorm)
		batchnorm_absent_end(model->batchnorm);
	model_tell_ready(pass, 1);
}

/* Computes the hidden layer up to and including its ReLU. */
static void forward_hidden(struct model *model, const struct batch *batch, bool training)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct ops *ops = model->ops;
	const float *weight = model_weight(model, mlp->weight_0),
				*bias = model_weight(model, mlp->bias_0);
	const int M = batch->samples;
	model_wait_weights(model, 1);
	if (!model->batchnorm) {
		ops->linear_relu(ops, mlp->hidden, batch->inputs, weight, bias, M, c->inputs, c->hidden);
		return;
	}
	ops->linear(ops, mlp->before, batch->inputs, weight, bias, M, c->inputs, c->hidden);
	if (training)
		batchnorm_forward(model->batchnorm, ops, mlp->hidden, mlp->before, batch->targets,
			model->valid, M);
	else
		batchnorm_evaluate(model->batchnorm, ops, mlp->hidden, mlp->before, M);
}

static void run(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct ops *ops = model->ops;
	const int M = batch->samples;
	forward_hidden(model, batch, pass->grads != NULL);
	model_wait_weights(model, 0);
	ops->linear(ops, mlp->logits, mlp->hidden, model_weight(model, mlp->weight_2),
		model_weight(model, mlp->bias_2), M, c->hidden, c->classes);
	model_tell_ready(pass, MODEL_FORWARD_DONE);
	ops->cross_entropy(ops, model->losses, mlp->logits, batch->targets, M, c->classes,
		pass->grads != NULL);
	if (pass->grads)
		backward(model, batch, pass);
}

static double flops(const struct model *model)
{
	return 6.0 * (double)model->table.parameters;
}

static json_t *config_json(const struct model *model)
{
	const struct model_config *c = &model->config;
	json_t *json = json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:s}", "model_type", "mlp", "inputs",
		c->inputs, "hidden", c->hidden, "classes", c->classes, "activation_function", "relu",
		"weight_layout", "[in, out]", "torch_dtype", "float32");
	if (c->batchnorm)
		json = record_set(json, "batch_norm",
			json_pack("{s:f, s:f}", "eps", BATCHNORM_EPSILON, "momentum", BATCHNORM_MOMENTUM));
	return json;
}

const struct model_methods model_mlp = {
	.build = build,
	.shapes = shapes,
	.lay_out = lay_out,
	.run = run,
	.absent = absent,
	.flops = flops,
	.config_json = config_json,
};
