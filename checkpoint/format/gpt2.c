/* SPDX-License-Identifier: Apache-2.0 */
/* One table holds the names and shapes of GPT-2's tensors, another the settings that a config.json
 * may have. */
#include "checkpoint/format/gpt2.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/record.h"
#include "common/auto.h"

#define EPSILON 1e-5
#define INIT_STD 0.02

/* ---- tensors ---- */

/* Dimensions are the letters V (vocabulary) and T (context), or a multiple of the width; columns 0:
 * a vector. */
static const struct {
	const char *name;
	char rows, columns;
} parts[GPT2_PARTS] = {
	[GPT2_WTE] = { "transformer.wte.weight", 'V', 1 },
	[GPT2_WPE] = { "transformer.wpe.weight", 'T', 1 },
	[GPT2_LN_1_WEIGHT] = { "ln_1.weight", 1, 0 },
	[GPT2_LN_1_BIAS] = { "ln_1.bias", 1, 0 },
	[GPT2_C_ATTN_WEIGHT] = { "attn.c_attn.weight", 1, 3 },
	[GPT2_C_ATTN_BIAS] = { "attn.c_attn.bias", 3, 0 },
	[GPT2_ATTN_PROJ_WEIGHT] = { "attn.c_proj.weight", 1, 1 },
	[GPT2_ATTN_PROJ_BIAS] = { "attn.c_proj.bias", 1, 0 },
	[GPT2_LN_2_WEIGHT] = { "ln_2.weight", 1, 0 },
	[GPT2_LN_2_BIAS] = { "ln_2.bias", 1, 0 },
	[GPT2_C_FC_WEIGHT] = { "mlp.c_fc.weight", 1, 4 },
	[GPT2_C_FC_BIAS] = { "mlp.c_fc.bias", 4, 0 },
	[GPT2_MLP_PROJ_WEIGHT] = { "mlp.c_proj.weight", 4, 1 },
	[GPT2_MLP_PROJ_BIAS] = { "mlp.c_proj.bias", 1, 0 },
	[GPT2_LN_F_WEIGHT] = { "transformer.ln_f.weight", 1, 0 },
	[GPT2_LN_F_BIAS] = { "transformer.ln_f.bias", 1, 0 },
};

int gpt2_is_of_block(enum gpt2_part part)
{
	return part >= GPT2_LN_1_WEIGHT && part <= GPT2_MLP_PROJ_BIAS;
}

static int64_t extent(const struct gpt2_config *config, char letter)
{
	return letter == 'V' ? config->vocabulary
		: letter == 'T'  ? config->context
						 : letter * config->width;
}

static void describe(const struct gpt2_config *config, enum gpt2_part part, int layer,
	struct gpt2_tensor *tensor)
{
	*tensor =
		(struct gpt2_tensor) { .part = part, .layer = layer, .dims = parts[part].columns ? 2 : 1 };
	tensor->shape[0] = extent(config, parts[part].rows);
	tensor->shape[1] = parts[part].columns ? extent(config, parts[part].columns) : 1;
	tensor->elements = (uint64_t)(tensor->shape[0] * tensor->shape[1]);
	if (layer < 0)
		snprintf(tensor->name, sizeof tensor->name, "%s", parts[part].name);
	else
		snprintf(tensor->name, sizeof tensor->name, "transformer.h.%d.%s", layer, parts[part].name);
}

int gpt2_tensors(const struct gpt2_config *config, struct gpt2_tensor **tensors, size_t *count,
	struct err *err)
{
	const int of_block = GPT2_MLP_PROJ_BIAS - GPT2_LN_1_WEIGHT + 1;
	size_t made = 0, total = (size_t)(GPT2_PARTS - of_block + of_block * config->layers);
	struct gpt2_tensor *all = calloc(total, sizeof *all);
	if (!all)
		return err_set(err, "gpt2: no memory for %zu tensors", total);
	describe(config, GPT2_WTE, -1, &all[made++]);
	describe(config, GPT2_WPE, -1, &all[made++]);
	for (int layer = 0; layer < config->layers; layer++)
		for (int part = GPT2_LN_1_WEIGHT; part <= GPT2_MLP_PROJ_BIAS; part++)
			describe(config, (enum gpt2_part)part, layer, &all[made++]);
	describe(config, GPT2_LN_F_WEIGHT, -1, &all[made++]);
	describe(config, GPT2_LN_F_BIAS, -1, &all[made++]);
	*tensors = all;
	*count = made;
	return 0;
}

/* The limits are those of muster-train's options. */
int gpt2_check(const struct gpt2_config *config, const char *where, struct err *err)
{
	const struct {
		const char *name;
		int64_t value, low, high;
	} limits[] = {
		{ "layers", config->layers, 1, 1000 },
		{ "width", config->width, 1, 65536 },
		{ "heads", config->heads, 1, 1024 },
		{ "context", config->context, 1, 65536 },
		{ "vocabulary", config->vocabulary, 2, 65536 },
	};
	for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
		if (limits[i].value < limits[i].low || limits[i].value > limits[i].high)
			return err_fail(err, EXIT_DATA,
				"%s: %s is %" PRId64 ", and must lie between %" PRId64 " and %" PRId64, where,
				limits[i].name, limits[i].value, limits[i].low, limits[i].high);
	if (config->width % config->heads)
		return err_fail(err, EXIT_DATA,
			"%s: the width %" PRId64 " is no multiple of the %" PRId64 " heads", where,
			config->width, config->heads);
	return 0;
}

/* ---- config.json ---- */

/* Members that must be missing or have one of these values; otherwise it is another model. */
static const char must_be[] =
	"{\"model_type\": [\"gpt2\"], \"activation_function\": [\"gelu_new\", \"gelu_pytorch_tanh\"], "
	"\"scale_attn_weights\": [true], \"scale_attn_by_inverse_layer_idx\": [false], "
	"\"add_cross_attention\": [false], \"tie_word_embeddings\": [true]}";

static int check_member(const char *name, const json_t *value, const json_t *allowed,
	struct err *err)
{
	size_t i;
	json_t *one;
	if (!value || json_is_null(value))
		return 0;
	json_array_foreach(allowed, i, one) if (json_equal(value, one)) return 0;
	AUTO_FREE char *found = record_dump(value, JSON_ENCODE_ANY | JSON_COMPACT);
	AUTO_FREE char *want = record_dump(json_array_get(allowed, 0), JSON_ENCODE_ANY | JSON_COMPACT);
	return err_fail(err, EXIT_DATA, "config.json: %s is %.100s, and muster-train only has %s", name,
		found ? found : "?", want ? want : "?");
}

static int check_members(const json_t *object, struct err *err)
{
	const char *name;
	json_t *allowed, *rules = json_loads(must_be, 0, NULL);
	int result = rules ? 0 : err_set(err, "config.json: no memory");
	json_object_foreach(rules, name, allowed) if (result == 0) result =
		check_member(name, json_object_get(object, name), allowed, err);
	json_decref(rules);
	const json_t *epsilon = json_object_get(object, "layer_norm_epsilon");
	if (result == 0 && json_is_number(epsilon)
		&& fabs(json_number_value(epsilon) / EPSILON - 1) > 1e-6)
		return err_fail(err, EXIT_DATA,
			"config.json: layer_norm_epsilon is %g, and muster-train only has %g",
			json_number_value(epsilon), EPSILON);
	return result;
}

/* Reads a dimension by Hugging Face's name. If it is missing, `fallback` is GPT2Config's default,
 * which is that of the small model. */
static int get_dimension(const json_t *object, const char *name, int64_t fallback, int64_t *value,
	struct err *err)
{
	const json_t *json = json_object_get(object, name);
	if (json && !json_is_integer(json))
		return err_fail(err, EXIT_DATA, "config.json: %s is no integer", name);
	*value = json ? json_integer_value(json) : fallback;
	return 0;
}

static int64_t get_token(const json_t *object, const char *name)
{
	const json_t *json = json_object_get(object, name);
	return json_is_integer(json) && json_integer_value(json) >= 0 ? json_integer_value(json) : -1;
}

static int parse_object(const json_t *object, struct gpt2_config *config, struct err *err)
{
	int64_t inner;
	if (!json_is_object(object) || !json_is_string(json_object_get(object, "model_type")))
		return err_fail(err, EXIT_DATA, "config.json: it does not name a model_type");
	if (check_members(object, err) < 0
		|| get_dimension(object, "n_layer", 12, &config->layers, err) < 0
		|| get_dimension(object, "n_embd", 768, &config->width, err) < 0
		|| get_dimension(object, "n_head", 12, &config->heads, err) < 0
		|| get_dimension(object, "n_positions", 1024, &config->context, err) < 0
		|| get_dimension(object, "vocab_size", 50257, &config->vocabulary, err) < 0
		|| gpt2_check(config, "config.json", err) < 0)
		return -1;
	const json_t *n_inner = json_object_get(object, "n_inner");
	inner = json_is_integer(n_inner) ? json_integer_value(n_inner) : 4 * config->width;
	if (inner != 4 * config->width)
		return err_fail(err, EXIT_DATA,
			"config.json: n_inner is %" PRId64 ", and muster-train only has 4 n_embd, %" PRId64,
			inner, 4 * config->width);
	config->begin = get_token(object, "bos_token_id");
	config->end = get_token(object, "eos_token_id");
	return 0;
}

int gpt2_config_parse(const char *text, size_t size, struct gpt2_config *config, struct err *err)
{
	json_t *object = record_parse(text, size, 0, "config.json: it", err);
	if (!object)
		return -1;
	int result = parse_object(object, config, err);
	json_decref(object);
	return result;
}

static json_t *token_json(int64_t token)
{
	return token < 0 ? json_null() : json_integer(token);
}

/* Members as in https://huggingface.co/docs/transformers/model_doc/gpt2, GPT2Config. The dropouts
 * are 0, since this training has none. */
json_t *gpt2_config_json(const struct gpt2_config *config, const char *dtype)
{
	return json_pack("{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:I, s:f, s:f, s:f, s:f, "
					 "s:f, s:b, s:b, s:s, s:o, s:o}",
		"architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new",
		"n_layer", (json_int_t)config->layers, "n_embd", (json_int_t)config->width, "n_head",
		(json_int_t)config->heads, "n_positions", (json_int_t)config->context, "n_ctx",
		(json_int_t)config->context, "n_inner", "vocab_size", (json_int_t)config->vocabulary,
		"layer_norm_epsilon", EPSILON, "initializer_range", INIT_STD, "attn_pdrop", 0.0,
		"embd_pdrop", 0.0, "resid_pdrop", 0.0, "scale_attn_weights", 1, "tie_word_embeddings", 1,
		"torch_dtype", dtype, "bos_token_id", token_json(config->begin), "eos_token_id",
		token_json(config->end));
}
