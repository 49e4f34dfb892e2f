/* SPDX-License-Identifier: Apache-2.0 */
/* How a step changes the weights: learning rate, clipping and AdamW over the tensor table.
 * Everything is a function of the step and the reduced gradients; the moments are the only
 * state. */
#ifndef MUSTER_OPTIMIZER_H
#define MUSTER_OPTIMIZER_H

#include <stdint.h>

#include "trainer/model/tensors.h"
#include "trainer/model/zero_shard.h"
#include "trainer/ops/ops.h"

struct optimizer_config {
	double learning_rate;         /* the highest */
	double minimal_learning_rate; /* at the end of the decay */
	uint64_t warmup;              /* steps of linear warm-up */
	uint64_t steps;               /* at which the decay ends; later steps keep the minimum */
	double beta1, beta2, epsilon, weight_decay;
	double clip; /* the largest norm of the gradients; 0: no limit */
};

/* Learning rate of a step, counted from 1. First a linear warm-up, highest·step/warmup, then a
 * cosine from the highest to the minimum (Loshchilov and Hutter, arXiv 1608.03983, without
 * restarts): with p = (step - 1 - warmup) / (steps - warmup), minimum + (highest - minimum)·(1 +
 * cos(pi·p)) / 2. */
double optimizer_learning_rate(const struct optimizer_config *config, uint64_t step);

/* Fills in what is known before a step's first pass. `valid` is the number of valid targets in the
 * global batch. */
void optimizer_begin(const struct optimizer_config *config, uint64_t step, int64_t valid,
	struct step_params *params);

/* After the reduction: sets the clip factor min(1, clip / norm), and `masked` when loss or norm is
 * not finite. Returns whether the step changes the weights. */
bool optimizer_clip(const struct optimizer_config *config, double loss, double norm,
	struct step_params *params);

/* AdamW over the parameters in the shards `own`, from the arenas of `from` to those of `to`, which
 * may be the same; only matrices (tensor.decay) decay. The arenas have the table's offsets. Does
 * not touch padding. For devices whose memory is the host's. */
void optimizer_update(struct ops *ops, const struct tensor_table *table,
	const struct zero_shard *own, size_t own_count, const struct adamw_state *to,
	const struct adamw_state *from, const float *grads);
/* Copies what is no parameter, and so no update changes. */
void optimizer_keep(const struct tensor_table *table, const struct adamw_state *to,
	const struct adamw_state *from);
/* Lists the chunks of such an update for adamw_chunks, by place; the arenas of moments hold those
 * of `own` only, one shard after the other. Writes at most `most`; returns the number of all. */
size_t optimizer_chunks(const struct tensor_table *table, const struct zero_shard *own,
	size_t own_count, struct adamw_chunk *chunks, size_t most);

#endif
