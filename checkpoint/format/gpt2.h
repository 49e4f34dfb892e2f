/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 as its files name it: the dimensions, config.json, and the tensors (Hugging Face's
 * GPT2LMHeadModel; matrices are [in, out], the head is tied to the token embedding). The trainer's
 * table (trainer/model/model_gpt2.c) has the same. */
#ifndef MUSTER_GPT2_H
#define MUSTER_GPT2_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

struct gpt2_config {
	int64_t layers, width, heads, context, vocabulary;
	int64_t begin, end; /* token ids of beginning and end of text; -1: none */
};

/* Which tensor of a block or of the model. */
enum gpt2_part {
	GPT2_WTE,
	GPT2_WPE,
	GPT2_LN_1_WEIGHT,
	GPT2_LN_1_BIAS,
	GPT2_C_ATTN_WEIGHT,
	GPT2_C_ATTN_BIAS,
	GPT2_ATTN_PROJ_WEIGHT,
	GPT2_ATTN_PROJ_BIAS,
	GPT2_LN_2_WEIGHT,
	GPT2_LN_2_BIAS,
	GPT2_C_FC_WEIGHT,
	GPT2_C_FC_BIAS,
	GPT2_MLP_PROJ_WEIGHT,
	GPT2_MLP_PROJ_BIAS,
	GPT2_LN_F_WEIGHT,
	GPT2_LN_F_BIAS,
	GPT2_PARTS,
};

struct gpt2_tensor {
	char name[96]; /* "transformer.h.0.attn.c_attn.weight" */
	enum gpt2_part part;
	int layer; /* -1 where the model has one only */
	int dims;  /* 1 or 2 */
	int64_t shape[2];
	uint64_t elements;
};

/* Refuses dimensions that no model of ours has (EXIT_DATA); `where` is the file they come from. */
int gpt2_check(const struct gpt2_config *config, const char *where, struct err *err);

/* The tensors of a model of checked dimensions: *tensors is malloc'ed. -1 when out of memory. */
int gpt2_tensors(const struct gpt2_config *config, struct gpt2_tensor **tensors, size_t *count,
	struct err *err);

/* Whether a model has `part` once for each layer. */
int gpt2_is_of_block(enum gpt2_part part);

/* Reads config.json's text. Refuses (EXIT_DATA) a model that is no GPT-2, or one that computes
 * something else than ours: another activation, an untied head and so on; the line names the
 * member. */
int gpt2_config_parse(const char *text, size_t size, struct gpt2_config *config, struct err *err);

/* config.json for a model with weights of `dtype` ("float32"). NULL when out of memory. */
json_t *gpt2_config_json(const struct gpt2_config *config, const char *dtype);

#endif
