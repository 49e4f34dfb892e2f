/* SPDX-License-Identifier: Apache-2.0 */
/* The textbook Linear–ReLU–Linear over a table's columns, with classes as targets. Tensors are named as in PyTorch's
 * nn.Sequential(nn.Linear, nn.ReLU, nn.Linear): 0.weight, 0.bias, 2.weight, 2.bias. The weights are [in, out], the
 * transpose of nn.Linear's; config.json says so. Initial values are nn.Linear's: uniform in ± 1/sqrt(inputs). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/model_kind.h"

#define SIZE_LIMIT (1 << 24)

struct mlp {
	size_t weight_0, bias_0, weight_2, bias_2;
	float *hidden;   /* [M, hidden] after ReLU */
	float *dhidden;  /* [M, hidden] */
	float *logits;   /* [M, classes], then their gradient */
};

static int add_linear(struct model *model, int index, int layer, int inputs, int outputs, size_t *weight, size_t *bias,
	struct err *err)
{
	const float bound = (float)(1.0 / sqrt(inputs));
	struct tensor matrix = { .dims = 2, .shape = { inputs, outputs }, .decay = true, .layer = layer,
		.init = TENSOR_UNIFORM, .init_std = bound };
	struct tensor vector = { .dims = 1, .shape = { outputs }, .layer = layer, .init = TENSOR_UNIFORM,
		.init_std = bound };
	snprintf(matrix.name, sizeof matrix.name, "%d.weight", index);
	snprintf(vector.name, sizeof vector.name, "%d.bias", index);
	if (model_add(model, &matrix, weight, err) < 0)
		return -1;
	return model_add(model, &vector, bias, err);
}

static int build(struct model *model, struct err *err)
{
	const struct model_config *c = &model->config;
	if (model_check("--inputs", c->inputs, SIZE_LIMIT, err) < 0 || model_check("--hidden", c->hidden, SIZE_LIMIT, err) < 0
		|| model_check("--classes", c->classes, SIZE_LIMIT, err) < 0)
		return -1;
	struct mlp *mlp = model->kind = calloc(1, sizeof *mlp);
	if (!mlp)
		return err_set(err, "model: couldn't make the model: out of memory");
	if (add_linear(model, 2, 0, c->hidden, c->classes, &mlp->weight_2, &mlp->bias_2, err) < 0)
		return -1;
	return add_linear(model, 0, 1, c->inputs, c->hidden, &mlp->weight_0, &mlp->bias_0, err);
}

static void shapes(const struct model *model, int batch, struct ops_shapes *shapes)
{
	const struct model_config *c = &model->config;
	*shapes = (struct ops_shapes){ .batch = batch, .positions = 1, .width = c->inputs, .hidden = c->hidden,
		.vocabulary = c->classes };
}

static size_t lay_out(struct model *model, int batch, float *base)
{
	struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct slicer slicer = { .base = base };
	const size_t M = (size_t)batch;
	mlp->hidden = slice(&slicer, M * (size_t)c->hidden);
	mlp->dhidden = slice(&slicer, M * (size_t)c->hidden);
	mlp->logits = slice(&slicer, M * (size_t)c->classes);
	model->losses = slice(&slicer, M);
	return slicer.used;
}

static void backward(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct ops *ops = model->ops;
	float *grads = pass->grads;
	const int M = batch->samples;
	ops->linear_backward_weight(ops, grads + mlp->weight_2, grads + mlp->bias_2, mlp->hidden, mlp->logits, M, c->hidden,
		c->classes, pass->accumulate);
	if (pass->ready)
		pass->ready(pass->arg, 0);
	ops->linear_backward_input_relu(ops, mlp->dhidden, mlp->logits, model->weights + mlp->weight_2, mlp->hidden, M,
		c->hidden, c->classes);
	ops->linear_backward_weight(ops, grads + mlp->weight_0, grads + mlp->bias_0, batch->inputs, mlp->dhidden, M,
		c->inputs, c->hidden, pass->accumulate);
	if (pass->ready)
		pass->ready(pass->arg, 1);
}

static void run(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	const struct mlp *mlp = model->kind;
	const struct model_config *c = &model->config;
	struct ops *ops = model->ops;
	const float *w = model->weights;
	const int M = batch->samples;
	ops->linear_relu(ops, mlp->hidden, batch->inputs, w + mlp->weight_0, w + mlp->bias_0, M, c->inputs, c->hidden);
	ops->linear(ops, mlp->logits, mlp->hidden, w + mlp->weight_2, w + mlp->bias_2, M, c->hidden, c->classes);
	ops->cross_entropy(ops, model->losses, mlp->logits, batch->targets, M, c->classes, pass->grads != NULL);
	if (pass->grads)
		backward(model, batch, pass);
}

static size_t targets(const struct batch *batch)
{
	return (size_t)batch->samples;
}

static double flops(const struct model *model)
{
	return 6.0 * (double)model->table.parameters;
}

static json_t *config_json(const struct model *model)
{
	const struct model_config *c = &model->config;
	return json_pack("{s:s, s:i, s:i, s:i, s:s, s:s, s:s}", "model_type", "mlp", "inputs", c->inputs, "hidden", c->hidden,
		"classes", c->classes, "activation_function", "relu", "weight_layout", "[in, out]", "torch_dtype", "float32");
}

const struct model_methods model_mlp = {
	.build = build,
	.shapes = shapes,
	.lay_out = lay_out,
	.run = run,
	.targets = targets,
	.flops = flops,
	.config_json = config_json,
};
