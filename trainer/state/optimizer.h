/* SPDX-License-Identifier: Apache-2.0 */
/* What a step does to the weights: learning rate, clipping and AdamW over the tensor table.
 * Everything is a function of the step and the reduced gradients; there is no state but the
 * moments. */
#ifndef MUSTER_OPTIMIZER_H
#define MUSTER_OPTIMIZER_H

#include <stdint.h>

#include "trainer/model/tensors.h"
#include "trainer/ops/ops.h"

struct optimizer_config {
	double learning_rate;         /* the highest */
	double minimal_learning_rate; /* where the decay ends */
	uint64_t warmup;              /* steps of linear rise */
	uint64_t steps;               /* where the decay ends; steps after it keep the minimum */
	double beta1, beta2, epsilon, weight_decay;
	double clip; /* the largest norm of the gradients, 0: any */
};

/* Learning rate of a step, counted from 1: linear warm-up, highest·step/warmup, then a cosine from
 * the highest to the minimum (Loshchilov and Hutter, arXiv 1608.03983, without restarts): with p =
 * (step - 1 - warmup) / (steps - warmup), minimum + (highest - minimum)·(1 + cos(pi·p)) / 2. */
double optimizer_learning_rate(const struct optimizer_config *config, uint64_t step);

/* Before a step's first pass: fills in all that is known. `valid` is the number of targets of the
 * global batch. */
void optimizer_begin(const struct optimizer_config *config, uint64_t step, int64_t valid,
	struct step_params *params);

/* After the reduction: the clip factor min(1, clip / norm), and `masked` when loss or norm is not
 * finite. Returns whether the step changes the weights. */
bool optimizer_clip(const struct optimizer_config *config, double loss, double norm,
	struct step_params *params);

/* AdamW over all parameters, from the arenas of `from` to those of `to`, which may be the same;
 * matrices (tensor.decay) decay. Statistics stay as they are. The arenas have the table's offsets.
 * Padding is not touched. The ops' memory is the host's. */
void optimizer_update(struct ops *ops, const struct tensor_table *table,
	const struct adamw_state *to, const struct adamw_state *from, const float *grads);

/* Its two parts: elements [first, end) of the parameters, and what is no parameter. `compute` is
 * the arena of the new weights in the compute type of the ops, NULL: to->weights. */
void optimizer_update_run(struct ops *ops, const struct tensor_table *table,
	const struct adamw_state *to, const struct adamw_state *from, float *compute,
	const float *grads, size_t first, size_t end);
/* The chunks of such a run, by place, for what the ops update at once. Their moments are where they
 * are. Writes at most `most`; returns how many there are. */
size_t optimizer_chunks(const struct tensor_table *table, size_t first, size_t end,
	struct adamw_chunk *chunks, size_t most);
void optimizer_keep(const struct tensor_table *table, const struct adamw_state *to,
	const struct adamw_state *from);

#endif
