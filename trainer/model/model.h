/* SPDX-License-Identifier: Apache-2.0 */
/* A model: its tensor table, and the forward and backward pass of one microbatch over struct
 * ops. */
#ifndef MUSTER_MODEL_H
#define MUSTER_MODEL_H

#include <stdbool.h>

#include "common/err.h"
#include "trainer/comm/comm.h"
#include "trainer/data/batch.h"
#include "trainer/model/tensors.h"
#include "trainer/ops/ops.h"

enum model_kind { MODEL_GPT2, MODEL_MLP };

/* What a GPT-2 forgets of a block in its forward pass, to save memory, and computes again right
 * before the block's backward pass. It uses the same operations on what it kept, so no bit differs.
 * Each level also forgets what those before it do. */
enum model_recompute {
	RECOMPUTE_NONE,
	RECOMPUTE_NORM, /* both layer norms */
	RECOMPUTE_MLP,  /* the hidden layer, before and after GELU */
	RECOMPUTE_BLOCK /* all but the block's input */
};

struct model_config {
	enum model_kind kind;
	int layers, width, heads, context, vocabulary; /* gpt2 */
	bool split_embedding; /* gpt2: keep the head's gradient apart from the embedding's, see struct
							 tensor_table */
	enum model_recompute recompute; /* gpt2 */
	int inputs, hidden, classes; /* mlp: Linear(inputs, hidden) – ReLU – Linear(hidden, classes) */
	bool batchnorm;              /* mlp: BatchNorm(hidden) before the ReLU */
};

struct model;

/* model_train calls this when the gradients of all tensors of layers 0 … `layer` (tensor.layer) are
 * final for this microbatch; and before that with MODEL_FORWARD_DONE, when the forward pass is done
 * but for the loss. */
#define MODEL_FORWARD_DONE (-1)
typedef void model_ready(void *arg, int layer);

/* Checks the configuration and makes the tensor table; allocates no arenas yet. NULL on error
 * (EXIT_USAGE naming the flag). */
struct model *model_create(const struct model_config *config, struct err *err);
void model_destroy(struct model *model);
const struct model_config *model_config_of(const struct model *model);
const struct tensor_table *model_tensors(const struct model *model);

/* The largest shapes of microbatches of `batch` samples. */
void model_shapes(const struct model *model, int batch, struct ops_shapes *shapes);

/* Bytes of the activations of microbatches of `batch` samples, with `element` bytes in the compute
 * type; `device_memory`: on a device whose memory isn't the host's. */
size_t model_activations(struct model *model, int batch, bool device_memory, size_t element);

/* Prepares `ops` for microbatches of up to `batch` samples and allocates the activations. Call it
 * once. Borrows `ops`. */
int model_prepare(struct model *model, struct ops *ops, int batch, struct err *err);
size_t model_memory(const struct model *model); /* bytes of those activations */

/* Lets a model with batch normalisation exchange statistics with all ranks of `comm`, which must
 * outlive it, in each model_train. All ranks must train the same number of microbatches; one that
 * has none calls model_absent. Without this call the model normalises over its own batches.
 * `order`: [world] in which the ranks' statistics are combined, borrowed; NULL: that of their
 * numbers. */
int model_join(struct model *model, struct comm *comm, const int *order, struct err *err);

/* Binds the weights that passes read: an arena by the table's offsets, in the compute type of the
 * ops; and the master weights, in fp32, which may be the same arena: statistics are read from
 * there. Must be called before the first pass. Borrowed. */
void model_bind(struct model *model, const float *weights, const float *master);

/* From now on model_train captures forward and backward once for each arena of gradients and each
 * value of `accumulate`, and then replays them as a graph, where the ops can do that: the same
 * bits, launched at once. Not with batch normalisation. With graphs all weights are waited for
 * before the pass, and `ready` is called after all of it is queued. false: op by op again. */
void model_use_graphs(struct model *model, bool use);

/* model_train and model_loss call this before a pass reads the first weight of a layer
 * (tensor.layer); it returns when the layer's weights are there. A forward pass needs the layers in
 * reverse order, but a tied embedding, which it reads first and last, first. */
typedef void model_weights_wait(void *arg, int layer);
/* Sets it; NULL: all weights are always there. */
void model_set_weights_wait(struct model *model, model_weights_wait *wait, void *arg);

/* A GPT-2's model_train and model_loss ask this before each block, and return as soon as it is
 * true; what they leave is void. Once true, it must stay so. */
typedef bool model_abandon(void *arg);
/* Sets it; NULL: passes run to their end. */
void model_set_abandon(struct model *model, model_abandon *abandon, void *arg);

/* Writes the statistics counted since model_bind into the master weights that will be bound
 * next. */
void model_settle(const struct model *model, float *master);

/* Seconds that model_train has waited for other ranks since the last call. */
double model_waited(struct model *model);

/* The sum of the batch's losses over valid targets, as ops' sum_losses makes it, and the number of
 * these. Normalises batches by the running statistics. Waits for the device. */
void model_loss(struct model *model, const struct batch *batch, double *loss_sum, int64_t *valid);

/* Forward and backward. Writes the gradients of (sum of losses × params->loss_scale) into the arena
 * `grads`, which has tensor_table_gradients() elements, and the sum of the losses into *loss; both
 * lie in the device's memory. accumulate 0 overwrites, for the first microbatch of a slot; 1 adds.
 * *valid: valid targets of this microbatch alone. `ready` may be NULL. Writes only what the batch
 * can reach: padding, and positions after the batch's (at most the model's context), keep the zeros
 * that the arena was allocated with. */
void model_train(struct model *model, const struct batch *batch, float *grads, int accumulate,
	double *loss, int64_t *valid, model_ready *ready, void *arg);

/* In place of model_train on a rank without a batch: takes part in what the ranks exchange, and
 * calls `ready` (which may be NULL) at the same moments. Writes no gradient. */
void model_absent(struct model *model, model_ready *ready, void *arg);

/* Floating-point operations that forward and backward of one sample need, recomputation not
 * counted: 6·parameters·positions, and for attention 6·layers·width·positions², since a token
 * attends to half of the positions on average (the PaLM paper, appendix B, counts all of them). */
double model_flops(const struct model *model);

/* The model's config.json, as Hugging Face's GPT2LMHeadModel reads it (gpt2), or as a plain record
 * (mlp); malloc'ed JSON text. */
char *model_config_json(const struct model *model);

#endif
