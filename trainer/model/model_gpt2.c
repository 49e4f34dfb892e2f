/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 (Radford et al., 2019), exactly as Hugging Face's GPT2LMHeadModel: learned positions, layer
 * norm before each part, GELU in its tanh form, weights [in, out], the head tied to the token
 * embedding. Names and layouts are the same, so that a checkpoint is a plain copy. M = samples ×
 * positions, C = width, V = vocabulary. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/format/gpt2.h"
#include "trainer/model/model_kind.h"

#define INIT_STD 0.02
#define WIDTH_LIMIT (1 << 18)
#define COUNT_LIMIT (1 << 24)

/* The parts of a block. The gradients of a part become ready together in the backward pass, in this
 * order; a forward pass needs the last part first. So one part travels while the next one is
 * computed. */
enum part { MLP_PROJ, FC_AND_NORM, ATTN_PROJ, ATTN_AND_NORM, PARTS };

/* Offsets of a block's tensors in every arena. */
struct block_tensors {
	size_t ln_1_weight, ln_1_bias, c_attn_weight, c_attn_bias, attn_proj_weight, attn_proj_bias;
	size_t ln_2_weight, ln_2_bias, c_fc_weight, c_fc_bias, mlp_proj_weight, mlp_proj_bias;
};

/* The results that a layer norm keeps for its backward pass. */
struct norm {
	float *y;           /* [M, C] */
	float *mean, *rstd; /* [M] */
};

/* What a block's backward pass reads. All blocks share one place for what they forget (enum
 * model_recompute). */
struct block {
	float *input; /* [M, C] the residual stream */
	struct norm ln_1;
	float *qkv;      /* [M, 3C] */
	float *lse;      /* [B, H, T] */
	float *attended; /* [M, C] */
	float *middle;   /* [M, C] the residual stream after attention */
	struct norm ln_2;
	float *pre, *hidden; /* [M, 4C] before and after GELU */
};

struct gpt2 {
	size_t wte, wpe, ln_f_weight, ln_f_bias;
	size_t head;   /* offset of the head's part of wte's gradient; the same as wte where it is not
					  split */
	float *output; /* [M, C] the residual stream after the last block */
	struct norm ln_f;
	float *part;      /* [M, C] a part's addition to the stream; backward: gradient of its input */
	float *dresidual; /* [M, C] */
	float *dwide;     /* [M, 4C] gradient of hidden or of qkv */
	struct block *blocks; /* [layers], after `tensors` in the same allocation */
	struct block_tensors tensors[];
};

/* The shapes of one batch. */
struct extent {
	int B, T, C, H, M, V;
};

static struct extent extent_of(const struct model *model, const struct batch *batch)
{
	const struct model_config *c = &model->config;
	return (struct extent) { .B = batch->samples,
		.T = batch->positions,
		.C = c->width,
		.H = c->heads,
		.M = batch->samples * batch->positions,
		.V = c->vocabulary };
}

/* The tensor.layer of a block's part: the final norm is layer 0, and the embeddings come after
 * block 0's last part. */
static int layer_of(const struct model *model, int block, enum part part)
{
	return 1 + (model->config.layers - 1 - block) * PARTS + (int)part;
}

static int embeddings_layer(const struct model *model)
{
	return 1 + model->config.layers * PARTS;
}

static int check(const struct model_config *c, struct err *err)
{
	if (model_check("--layers", c->layers, 1000, err) < 0
		|| model_check("--width", c->width, WIDTH_LIMIT, err) < 0
		|| model_check("--heads", c->heads, c->width, err) < 0
		|| model_check("--context", c->context, COUNT_LIMIT, err) < 0
		|| model_check("--vocabulary", c->vocabulary, COUNT_LIMIT, err) < 0)
		return -1;
	if (c->width % c->heads != 0)
		return err_fail(err, EXIT_USAGE,
			"model: couldn't divide --width %d among --heads %d: it must be a multiple", c->width,
			c->heads);
	return 0;
}

static int add_vector(struct model *model, int layer, enum tensor_init init, int count,
	size_t *offset, struct err *err, const char *prefix, const char *name)
{
	struct tensor row = { .dims = 1, .shape = { count }, .layer = layer, .init = init };
	snprintf(row.name, sizeof row.name, "%s%s", prefix, name);
	return model_add(model, &row, offset, err);
}

static int add_matrix(struct model *model, int layer, double std, int rows, int columns,
	size_t *offset, struct err *err, const char *prefix, const char *name)
{
	struct tensor row = { .dims = 2,
		.shape = { rows, columns },
		.decay = true,
		.layer = layer,
		.init = TENSOR_NORMAL,
		.init_std = (float)std };
	snprintf(row.name, sizeof row.name, "%s%s", prefix, name);
	return model_add(model, &row, offset, err);
}

/* Adds the rows of a block, last part first. */
static int add_block(struct model *model, int index, struct err *err)
{
	struct block_tensors *t = &((struct gpt2 *)model->kind)->tensors[index];
	const int C = model->config.width;
	/* Each block adds to the residual stream twice; the stream's variance must not grow with
	 * depth. */
	const double residual_std = INIT_STD / sqrt(2.0 * model->config.layers);
	char prefix[40];
	snprintf(prefix, sizeof prefix, "transformer.h.%d.", index);
#define MATRIX(part, field, std, rows, columns, name) \
	add_matrix(model, layer_of(model, index, part), std, rows, columns, &t->field, err, prefix, \
		name) \
		< 0
#define VECTOR(part, field, init, count, name) \
	add_vector(model, layer_of(model, index, part), init, count, &t->field, err, prefix, name) < 0
	if (MATRIX(MLP_PROJ, mlp_proj_weight, residual_std, 4 * C, C, "mlp.c_proj.weight")
		|| VECTOR(MLP_PROJ, mlp_proj_bias, TENSOR_ZERO, C, "mlp.c_proj.bias")
		|| MATRIX(FC_AND_NORM, c_fc_weight, INIT_STD, C, 4 * C, "mlp.c_fc.weight")
		|| VECTOR(FC_AND_NORM, c_fc_bias, TENSOR_ZERO, 4 * C, "mlp.c_fc.bias")
		|| VECTOR(FC_AND_NORM, ln_2_weight, TENSOR_ONE, C, "ln_2.weight")
		|| VECTOR(FC_AND_NORM, ln_2_bias, TENSOR_ZERO, C, "ln_2.bias")
		|| MATRIX(ATTN_PROJ, attn_proj_weight, residual_std, C, C, "attn.c_proj.weight")
		|| VECTOR(ATTN_PROJ, attn_proj_bias, TENSOR_ZERO, C, "attn.c_proj.bias")
		|| MATRIX(ATTN_AND_NORM, c_attn_weight, INIT_STD, C, 3 * C, "attn.c_attn.weight")
		|| VECTOR(ATTN_AND_NORM, c_attn_bias, TENSOR_ZERO, 3 * C, "attn.c_attn.bias")
		|| VECTOR(ATTN_AND_NORM, ln_1_weight, TENSOR_ONE, C, "ln_1.weight")
		|| VECTOR(ATTN_AND_NORM, ln_1_bias, TENSOR_ZERO, C, "ln_1.bias"))
		return -1;
#undef MATRIX
#undef VECTOR
	return 0;
}

static int add_embeddings(struct model *model, struct err *err)
{
	struct gpt2 *g = model->kind;
	const struct model_config *c = &model->config;
	const int layer = embeddings_layer(model);
	const int64_t rows = OPS_VOCABULARY_ROWS((int64_t)c->vocabulary);
	const struct tensor wte = { .name = "transformer.wte.weight",
		.dims = 2,
		.shape = { c->vocabulary, c->width },
		.padded = { rows, c->width },
		.decay = true,
		.layer = layer,
		.init = TENSOR_NORMAL,
		.init_std = INIT_STD };
	if (model_add(model, &wte, &g->wte, err) < 0
		|| add_matrix(model, layer, INIT_STD, c->context, c->width, &g->wpe, err, "transformer.",
			   "wpe.weight")
			< 0)
		return -1;
	g->head = g->wte;
	if (c->split_embedding) {
		g->head = model->table.elements;
		model->table.split_offset = g->wte;
		model->table.split_count = (size_t)(rows * c->width);
	}
	return 0;
}

static int build(struct model *model, struct err *err)
{
	const struct model_config *c = &model->config;
	if (check(c, err) < 0)
		return -1;
	size_t layers = (size_t)c->layers;
	struct gpt2 *g = calloc(1, sizeof *g + layers * (sizeof *g->tensors + sizeof *g->blocks));
	if (!g)
		return err_set(err, "model: couldn't make the model: out of memory");
	g->blocks = (struct block *)(g->tensors + layers);
	model->kind = g;
	if (add_vector(model, 0, TENSOR_ONE, c->width, &g->ln_f_weight, err, "transformer.",
			"ln_f.weight")
			< 0
		|| add_vector(model, 0, TENSOR_ZERO, c->width, &g->ln_f_bias, err, "transformer.",
			   "ln_f.bias")
			< 0)
		return -1;
	for (int i = c->layers - 1; i >= 0; i--)
		if (add_block(model, i, err) < 0)
			return -1;
	return add_embeddings(model, err);
}

static void shapes(const struct model *model, int batch, struct ops_shapes *shapes)
{
	const struct model_config *c = &model->config;
	*shapes = (struct ops_shapes) { .batch = batch,
		.positions = c->context,
		.width = c->width,
		.heads = c->heads,
		.vocabulary = c->vocabulary,
		.hidden = 4 * c->width };
}

static void lay_out_norm(struct slicer *slicer, struct norm *norm, size_t M, size_t C)
{
	norm->y = slice(slicer, M * C);
	norm->mean = slice_floats(slicer, M);
	norm->rstd = slice_floats(slicer, M);
}

/* Block 0 gets a place for everything, the others only for what they keep. */
static void lay_out_block(struct model *model, int index, size_t M, struct slicer *slicer)
{
	struct gpt2 *g = model->kind;
	struct block *b = &g->blocks[index];
	const struct model_config *c = &model->config;
	const enum model_recompute forgets = index == 0 ? RECOMPUTE_NONE : c->recompute;
	const size_t C = (size_t)c->width;
	*b = g->blocks[0];
	b->input = slice(slicer, M * C);
	if (forgets < RECOMPUTE_NORM) {
		lay_out_norm(slicer, &b->ln_1, M, C);
		lay_out_norm(slicer, &b->ln_2, M, C);
	}
	if (forgets < RECOMPUTE_MLP) {
		b->pre = slice(slicer, M * 4 * C);
		b->hidden = slice(slicer, M * 4 * C);
	}
	if (forgets < RECOMPUTE_BLOCK) {
		b->qkv = slice(slicer, M * 3 * C);
		b->lse = slice_floats(slicer, M * (size_t)c->heads);
		b->attended = slice(slicer, M * C);
		b->middle = slice(slicer, M * C);
	}
}

static void lay_out(struct model *model, int batch, struct slicer *slicer)
{
	struct gpt2 *g = model->kind;
	const struct model_config *c = &model->config;
	const size_t M = (size_t)batch * (size_t)c->context, C = (size_t)c->width;
	for (int i = 0; i < c->layers; i++)
		lay_out_block(model, i, M, slicer);
	g->output = slice(slicer, M * C);
	lay_out_norm(slicer, &g->ln_f, M, C);
	g->part = slice(slicer, M * C);
	g->dresidual = slice(slicer, M * C);
	g->dwide = slice(slicer, M * 4 * C);
	model->losses = slice_floats(slicer, M);
}

/* sum = x + add and its norm; with `add` NULL, x is already the sum. */
static void norm_forward(struct model *model, struct norm *norm, float *sum, const float *x,
	const float *add, size_t weight, size_t bias, const struct extent *e)
{
	model->ops->layernorm(model->ops, sum, norm->y, norm->mean, norm->rstd, x, add,
		model_weight(model, weight), model_weight(model, bias), e->M, e->C);
}

/* Computes b->qkv, b->lse and b->attended from b->ln_1. */
static void attend(struct model *model, int index, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct ops *ops = model->ops;
	struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	ops->linear(ops, b->qkv, b->ln_1.y, model_weight(model, t->c_attn_weight),
		model_weight(model, t->c_attn_bias), e->M, e->C, 3 * e->C);
	ops->attention(ops, b->attended, b->lse, b->qkv, e->B, e->T, e->C, e->H);
}

/* Computes what attention adds to b->input from b->attended, into g->part. */
static void project_attended(struct model *model, int index, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	const struct block_tensors *t = &g->tensors[index];
	model->ops->linear(model->ops, g->part, g->blocks[index].attended,
		model_weight(model, t->attn_proj_weight), model_weight(model, t->attn_proj_bias), e->M,
		e->C, e->C);
}

/* Computes b->pre and b->hidden from b->ln_2. */
static void widen(struct model *model, int index, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	model->ops->linear_gelu(model->ops, b->hidden, b->pre, b->ln_2.y,
		model_weight(model, t->c_fc_weight), model_weight(model, t->c_fc_bias), e->M, e->C,
		4 * e->C);
}

/* Computes a block from b->ln_1, and leaves what its MLP adds to b->middle in g->part. Waits for
 * each part's weights separately. */
static void block_forward(struct model *model, int index, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	attend(model, index, e);
	model_wait_weights(model, layer_of(model, index, ATTN_PROJ));
	project_attended(model, index, e);
	model_wait_weights(model, layer_of(model, index, FC_AND_NORM));
	norm_forward(model, &b->ln_2, b->middle, b->input, g->part, t->ln_2_weight, t->ln_2_bias, e);
	widen(model, index, e);
	model_wait_weights(model, layer_of(model, index, MLP_PROJ));
	model->ops->linear(model->ops, g->part, b->hidden, model_weight(model, t->mlp_proj_weight),
		model_weight(model, t->mlp_proj_bias), e->M, 4 * e->C, e->C);
}

/* From the tokens to g->ln_f. The norm that reads the residual stream next also makes the addition
 * to it. */
static void forward(struct model *model, const struct batch *batch, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	const int layers = model->config.layers;
	model_wait_weights(model, embeddings_layer(model)); /* for the head, too */
	model->ops->embedding(model->ops, g->blocks[0].input, batch->tokens,
		model_weight(model, g->wte), model_weight(model, g->wpe), e->B, e->T, e->C);
	for (int i = 0; i < layers; i++) {
		struct block *b = &g->blocks[i];
		const struct block_tensors *t = &g->tensors[i];
		if (model_is_abandoned(model))
			return;
		model_wait_weights(model, layer_of(model, i, ATTN_AND_NORM));
		norm_forward(model, &b->ln_1, b->input, i > 0 ? b[-1].middle : b->input,
			i > 0 ? g->part : NULL, t->ln_1_weight, t->ln_1_bias, e);
		block_forward(model, i, e);
	}
	model_wait_weights(model, 0);
	norm_forward(model, &g->ln_f, g->output, g->blocks[layers - 1].middle, g->part, g->ln_f_weight,
		g->ln_f_bias, e);
}

/* Recomputes, before a block's backward pass, what the block forgot. The last block has everything,
 * since no other ran after it. All weights have been there since the forward pass, and g->part is
 * free between blocks. */
static void block_again(struct model *model, int index, const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	const enum model_recompute forgets =
		index == model->config.layers - 1 ? RECOMPUTE_NONE : model->config.recompute;
	const bool sum =
		forgets >= RECOMPUTE_BLOCK; /* add what attention adds to the residual stream again */
	if (forgets < RECOMPUTE_NORM)
		return;
	norm_forward(model, &b->ln_1, b->input, b->input, NULL, t->ln_1_weight, t->ln_1_bias, e);
	if (forgets >= RECOMPUTE_BLOCK) {
		attend(model, index, e);
		project_attended(model, index, e);
	}
	norm_forward(model, &b->ln_2, b->middle, sum ? b->input : b->middle, sum ? g->part : NULL,
		t->ln_2_weight, t->ln_2_bias, e);
	if (forgets >= RECOMPUTE_MLP)
		widen(model, index, e);
}

/* g->part holds the gradient of norm->y. g->dresidual gets that of x; accumulate_dx 1 adds it. */
static void norm_backward(struct model *model, const struct model_pass *pass,
	const struct norm *norm, const float *x, size_t weight, size_t bias, int accumulate_dx,
	const struct extent *e)
{
	struct gpt2 *g = model->kind;
	model->ops->layernorm_backward(model->ops, g->dresidual, pass->grads + weight,
		pass->grads + bias, g->part, x, model_weight(model, weight), norm->mean, norm->rstd, e->M,
		e->C, accumulate_dx, pass->accumulate);
}

/* Turns g->dresidual from the gradient of the block's output into that of b->middle. */
static void mlp_backward(struct model *model, int index, const struct model_pass *pass,
	const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct ops *ops = model->ops;
	const struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	float *grads = pass->grads;
	const int M = e->M, C = e->C;
	ops->linear_backward_weight(ops, grads + t->mlp_proj_weight, grads + t->mlp_proj_bias,
		b->hidden, g->dresidual, M, 4 * C, C, pass->accumulate);
	model_tell_ready(pass, layer_of(model, index, MLP_PROJ));
	ops->linear_backward_input_gelu(ops, g->dwide, g->dresidual,
		model_weight(model, t->mlp_proj_weight), b->pre, M, 4 * C, C);
	ops->linear_backward_weight(ops, grads + t->c_fc_weight, grads + t->c_fc_bias, b->ln_2.y,
		g->dwide, M, C, 4 * C, pass->accumulate);
	ops->linear_backward_input(ops, g->part, g->dwide, model_weight(model, t->c_fc_weight), M, C,
		4 * C);
	norm_backward(model, pass, &b->ln_2, b->middle, t->ln_2_weight, t->ln_2_bias, 1, e);
	model_tell_ready(pass, layer_of(model, index, FC_AND_NORM));
}

/* Turns g->dresidual from the gradient of b->middle into that of b->input. */
static void attention_backward(struct model *model, int index, const struct model_pass *pass,
	const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct ops *ops = model->ops;
	const struct block *b = &g->blocks[index];
	const struct block_tensors *t = &g->tensors[index];
	float *grads = pass->grads;
	const int M = e->M, C = e->C;
	ops->linear_backward_weight(ops, grads + t->attn_proj_weight, grads + t->attn_proj_bias,
		b->attended, g->dresidual, M, C, C, pass->accumulate);
	model_tell_ready(pass, layer_of(model, index, ATTN_PROJ));
	ops->linear_backward_input(ops, g->part, g->dresidual, model_weight(model, t->attn_proj_weight),
		M, C, C);
	ops->attention_backward(ops, g->dwide, g->part, b->qkv, b->attended, b->lse, e->B, e->T, C,
		e->H);
	ops->linear_backward_weight(ops, grads + t->c_attn_weight, grads + t->c_attn_bias, b->ln_1.y,
		g->dwide, M, C, 3 * C, pass->accumulate);
	ops->linear_backward_input(ops, g->part, g->dwide, model_weight(model, t->c_attn_weight), M, C,
		3 * C);
	norm_backward(model, pass, &b->ln_1, b->input, t->ln_1_weight, t->ln_1_bias, 1, e);
	model_tell_ready(pass, layer_of(model, index, ATTN_AND_NORM));
}

/* Runs after the head: g->part holds the gradient of ln_f.y. */
static void backward(struct model *model, const struct batch *batch, const struct model_pass *pass,
	const struct extent *e)
{
	struct gpt2 *g = model->kind;
	struct ops *ops = model->ops;
	norm_backward(model, pass, &g->ln_f, g->output, g->ln_f_weight, g->ln_f_bias, 0, e);
	model_tell_ready(pass, 0);
	for (int i = model->config.layers - 1; i >= 0; i--) {
		if (model_is_abandoned(model))
			return;
		block_again(model, i, e);
		mlp_backward(model, i, pass, e);
		attention_backward(model, i, pass, e);
	}
	/* wte's gradient already has the head's part, unless that part has a place of its own. */
	if (g->head != g->wte && !pass->accumulate)
		ops->zero(ops, pass->grads + g->wte, (size_t)e->V * (size_t)e->C);
	ops->embedding_backward(ops, pass->grads + g->wte, pass->grads + g->wpe, g->dresidual,
		batch->tokens, e->B, e->T, e->C, e->V, pass->accumulate);
	model_tell_ready(pass, embeddings_layer(model));
}

static void run(struct model *model, const struct batch *batch, const struct model_pass *pass)
{
	struct gpt2 *g = model->kind;
	struct ops *ops = model->ops;
	const struct extent e = extent_of(model, batch);
	forward(model, batch, &e);
	if (model_is_abandoned(model))
		return;
	model_tell_ready(pass, MODEL_FORWARD_DONE);
	ops->head_loss(ops, model->losses, pass->grads ? g->part : NULL,
		pass->grads ? pass->grads + g->head : NULL, g->ln_f.y, model_weight(model, g->wte),
		batch->targets, e.M, e.C, e.V, pass->accumulate);
	if (pass->grads)
		backward(model, batch, pass, &e);
}

static double flops(const struct model *model)
{
	const struct model_config *c = &model->config;
	const double positions = c->context;
	return 6.0 * (double)model->table.parameters * positions
		+ 6.0 * c->layers * c->width * positions * positions;
}

static json_t *config_json(const struct model *model)
{
	const struct model_config *c = &model->config;
	const int end_of_text = 50256; /* in GPT-2's own vocabulary; others have no known one */
	const int64_t end = c->vocabulary > end_of_text ? end_of_text : -1;
	const struct gpt2_config config = { .layers = c->layers,
		.width = c->width,
		.heads = c->heads,
		.context = c->context,
		.vocabulary = c->vocabulary,
		.begin = end,
		.end = end };
	return gpt2_config_json(&config, "float32");
}

const struct model_methods model_gpt2 = {
	.build = build,
	.shapes = shapes,
	.lay_out = lay_out,
	.run = run,
	.flops = flops,
	.config_json = config_json,
};
