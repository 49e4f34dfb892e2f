/* SPDX-License-Identifier: Apache-2.0 */
/* Weights between a model's files and an arena: read from any source of a GPT-2, and handed on as
 * such a source while the training goes on. */
#ifndef MUSTER_ARENA_SOURCE_H
#define MUSTER_ARENA_SOURCE_H

#include "checkpoint/convert/model_source.h"
#include "common/err.h"
#include "trainer/model/model.h"

/* The trainer's model of these dimensions. */
struct model_config arena_source_model(const struct gpt2_config *config);

/* Reads all tensors of the table, which is that of such a model, into a zeroed arena in host
 * memory. */
int arena_source_fill(struct model_source *source, const struct tensor_table *table, float *arena,
	struct err *err);

/* Hands on the weights of an arena in the device's memory, which must stay as they are until the
 * source is closed. NULL when out of memory. */
struct model_source *arena_source_open(const struct gpt2_config *config,
	const struct tensor_table *table, struct device *device, const float *arena);

#endif
