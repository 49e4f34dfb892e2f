/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files model*.c: the common part of a model, and the functions that each kind of
 * model brings. */
#ifndef MUSTER_MODEL_KIND_H
#define MUSTER_MODEL_KIND_H

#include <jansson.h>

#include "trainer/model/batchnorm.h"
#include "trainer/model/model.h"

/* One pass over a microbatch; ready may be NULL. */
struct model_pass {
	float *grads; /* NULL: loss only */
	int accumulate;
	model_ready *ready;
	void *arg;
};

struct slicer;
struct model_graph;
struct model_methods {
	/* Checks the configuration, adds the rows to the table and sets model->kind, malloc'ed. */
	int (*build)(struct model *model, struct err *err);
	/* The largest shapes of microbatches of `batch` samples; and the places of their activations in
	 * a block. */
	void (*shapes)(const struct model *model, int batch, struct ops_shapes *shapes);
	void (*lay_out)(struct model *model, int batch, struct slicer *slicer);
	/* One pass; leaves the loss of each target in model->losses. */
	void (*run)(struct model *model, const struct batch *batch, const struct model_pass *pass);
	/* Does model_absent; NULL: only says at once that all is ready. */
	void (*absent)(struct model *model, const struct model_pass *pass);
	double (*flops)(const struct model *model);
	json_t *(*config_json)(const struct model *model);
};

extern const struct model_methods model_gpt2, model_mlp;

struct model {
	struct model_config config;
	const struct model_methods *methods;
	struct tensor_table table;
	struct ops *ops;             /* borrowed */
	struct batchnorm *batchnorm; /* NULL: there is none */
	const float *weights;        /* borrowed arena */
	model_weights_wait *wait;    /* NULL: none */
	void *wait_arg;
	model_abandon *abandon; /* NULL: passes run to their end */
	void *abandon_arg;
	float *losses; /* [targets of a microbatch] inside `block` */
	void *block;   /* activations, in the device's memory */
	size_t block_bytes;
	int valid;                  /* targets of the current microbatch that count */
	struct model_graph *graphs; /* captured passes (model_graph.h) */
	bool use_graphs, graphs_fail;
	struct batch placed; /* with device memory: where a batch is put, inside `block` */
	double *sum;         /* with device memory: the sum of losses that the host reads */
	uint16_t *halves;    /* with bf16: inputs on their way to the device */
	void *kind;          /* owned, of its kind: offsets of tensors and places of activations */
};

/* Takes consecutive arrays out of a block; with base NULL it only counts. */
struct slicer {
	char *base;
	size_t used;    /* bytes */
	size_t element; /* of an activation */
};

float *slice(struct slicer *slicer, size_t activations);
/* For arrays that are fp32 in any compute type. */
float *slice_floats(struct slicer *slicer, size_t floats);

/* The weights that a pass reads at an offset of the table. */
static inline const float *model_weight(const struct model *model, size_t offset)
{
	return (
		const float *)(const void *)((const char *)model->weights + offset * model->ops->element);
}

/* Adds a row to the table and returns its offset in *offset. */
int model_add(struct model *model, const struct tensor *row, size_t *offset, struct err *err);

/* Must be called before a pass reads the weights of a layer. */
static inline void model_wait_weights(const struct model *model, int layer)
{
	if (model->wait)
		model->wait(model->wait_arg, layer);
}

/* Whether the pass is to return, whatever it leaves. */
static inline bool model_is_abandoned(const struct model *model)
{
	return model->abandon && model->abandon(model->abandon_arg);
}

/* Says that the gradients of layers 0 … `layer` are final, or MODEL_FORWARD_DONE. */
static inline void model_tell_ready(const struct model_pass *pass, int layer)
{
	if (pass->ready)
		pass->ready(pass->arg, layer);
}

/* Checks that a number of the configuration is in [1, limit]; the message names the flag. */
int model_check(const char *flag, int value, int limit, struct err *err);

#endif
