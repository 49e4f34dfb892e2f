/* SPDX-License-Identifier: Apache-2.0 */
/* A model: its tensor table, and forward and backward of one microbatch over struct ops. */
#ifndef MUSTER_MODEL_H
#define MUSTER_MODEL_H

#include <stdbool.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "trainer/model/tensors.h"
#include "trainer/ops/ops.h"

enum model_kind { MODEL_GPT2, MODEL_MLP };

/* What a GPT-2 forgets of a block in its forward pass and computes again, from what it kept, right
 * before the block's backward pass: by the same operations, so that no bit differs. Each level
 * forgets what those before it do, too. */
enum model_recompute {
	RECOMPUTE_NONE,
	RECOMPUTE_NORM, /* both layer norms */
	RECOMPUTE_MLP,  /* the hidden layer, before and after GELU */
	RECOMPUTE_BLOCK /* all but the block's input */
};

struct model_config {
	enum model_kind kind;
	int layers, width, heads, context, vocabulary; /* gpt2 */
	bool split_embedding; /* gpt2: the head's gradient is kept apart from the embedding's, see
							 struct tensor_table */
	enum model_recompute recompute; /* gpt2 */
	int inputs, hidden, classes; /* mlp: Linear(inputs, hidden) – ReLU – Linear(hidden, classes) */
	bool batchnorm;              /* mlp: BatchNorm(hidden) before the ReLU */
};

struct model;

/* Called by model_train when the gradients of all tensors of layers 0 … `layer` (tensor.layer) are
 * final for this microbatch; and before that with MODEL_FORWARD_DONE, below all layers, when
 * nothing but the loss is missing. */
#define MODEL_FORWARD_DONE (-1)
typedef void model_ready(void *arg, int layer);

/* Checks the configuration (status EXIT_USAGE, naming the flag) and makes the tensor table; no
 * memory for arenas yet. */
struct model *model_create(const struct model_config *config, struct err *err);
void model_destroy(struct model *model);
const struct model_config *model_config_of(const struct model *model);
const struct tensor_table *model_tensors(const struct model *model);
int model_layers(const struct model *model); /* number of distinct tensor.layer values */

/* The shapes of microbatches of `batch` samples. */
void model_shapes(const struct model *model, int batch, struct ops_shapes *shapes);

/* Bytes of the activations of microbatches of `batch` samples, with `element` bytes of what is
 * computed with; `device_memory`: on a device whose memory isn't the host's. */
size_t model_activations(struct model *model, int batch, bool device_memory, size_t element);

/* Prepares `ops` for microbatches of up to `batch` samples and allocates activations. Once. */
int model_prepare(struct model *model, struct ops *ops, int batch, struct err *err);

/* A model with batch normalisation exchanges something in each model_train with all ranks of
 * `comm`, which must outlive it: they have to train the same number of microbatches, and one that
 * can't calls model_absent. Without this it is alone. */
int model_join(struct model *model, struct comm *comm, struct err *err);

/* Where the weights are that passes read (an arena by the table's offsets, in the compute type of
 * the ops); must be called before forward. */
void model_bind(struct model *model, const float *weights);
/* The same where master weights are another arena, of fp32: statistics are read from there. */
void model_bind_cast(struct model *model, const float *weights, const float *master);

/* From now on forward and backward of model_train are captured once for each arena and accumulate,
 * and then replayed, where the ops can do that: the same bits, at once; not with batch
 * normalisation. `ready` is called behind all of it then, and the gate before. false: again op by
 * op. */
void model_use_graphs(struct model *model, bool use);

/* Called by model_train and model_loss before a pass reads the first weight of a layer
 * (tensor.layer): it returns when they are there. A forward pass needs the layers in their reverse
 * order; a tied embedding, which it reads first and last, first. */
typedef void model_weights_wait(void *arg, int layer);
/* From now on; NULL: all weights are always there. */
void model_set_weights_wait(struct model *model, model_weights_wait *wait, void *arg);

/* Writes the statistics that have been counted since model_bind into the master weights that are to
 * be bound next. */
void model_settle(const struct model *model, float *master);

/* Seconds that model_train has waited for other ranks since the last call. */
double model_waited(struct model *model);

/* Losses of the batch (sum over valid targets, as ops' sum_losses makes it) and the number of valid
 * targets. Batches are normalised by the running statistics. Waits for the device. */
void model_loss(struct model *model, const struct batch *batch, double *loss_sum, int64_t *valid);

/* Forward and backward: gradients of (sum of losses × params->loss_scale) into the arena `grads`,
 * which has tensor_table_gradients() elements, and the sum of the losses into *loss, both where the
 * ops have their memory; accumulate 0 for the first microbatch of a slot (overwrites), else 1.
 * *valid: targets of this microbatch alone. `ready` may be NULL. Only what the batch can reach is
 * written: padding, and positions behind the batch's (at most the model's context), keep the zeros
 * that the arena was allocated with. */
void model_train(struct model *model, const struct batch *batch, float *grads, int accumulate,
	double *loss, int64_t *valid, model_ready *ready, void *arg);

/* In the place of model_train: takes part in what the ranks exchange, and calls `ready` (which may
 * be NULL) at the same moments, without a batch. No gradient is written. */
void model_absent(struct model *model, model_ready *ready, void *arg);

/* Floating-point operations that forward and backward of one sample need, recomputation not
 * counted: 6·parameters·positions, and for attention 6·layers·width·positions², since a token
 * attends to half of the positions on average (the PaLM paper, appendix B, counts all of them). */
double model_flops(const struct model *model);

/* Writes config.json as Hugging Face's GPT2LMHeadModel reads it (gpt2), or a plain record (mlp);
 * malloc'ed JSON text. */
char *model_config_json(const struct model *model);

#endif
