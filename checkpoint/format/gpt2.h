/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 as its files describe it: the dimensions, config.json, and the tensors (Hugging Face's
 * GPT2LMHeadModel; matrices are [in, out], the head is tied to the token embedding). The trainer's
 * table (trainer/model/model_gpt2.c) has the same names and shapes. */
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

/* The tensors of a GPT-2; those between the embeddings and the last layernorm exist once per
 * block. */
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
	int layer; /* -1 for a tensor that the model has only once */
	int dims;  /* 1 or 2 */
	int64_t shape[2];
	uint64_t elements;
};

/* Refuses dimensions that our models can't have (EXIT_DATA); `where` is the file that they come
 * from. */
int gpt2_check(const struct gpt2_config *config, const char *where, struct err *err);

/* The tensors of a model; the dimensions must have been checked. *tensors is malloc'ed and the
 * caller's. -1 when out of memory. */
int gpt2_tensors(const struct gpt2_config *config, struct gpt2_tensor **tensors, size_t *count,
	struct err *err);

/* Whether a model has `part` once per layer. */
int gpt2_is_of_block(enum gpt2_part part);

/* Parses the text of config.json. Refuses (EXIT_DATA) a model that is no GPT-2, or one that
 * computes something else than ours does: another activation, an untied head and so on. The message
 * names the member. */
int gpt2_config_parse(const char *text, size_t size, struct gpt2_config *config, struct err *err);

/* Makes the config.json of a model whose weights have type `dtype` ("float32"). NULL when out of
 * memory. */
json_t *gpt2_config_json(const struct gpt2_config *config, const char *dtype);

#endif
