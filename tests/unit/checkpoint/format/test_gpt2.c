/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2: the tensors of the files are those of the trainer's table, and a configuration that means
 * another model is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/format/gpt2.h"
#include "common/auto.h"
#include "trainer/model/model.h"

static void the_table_is_the_trainers(void **state)
{
	static const struct gpt2_config configs[] = { { 1, 8, 2, 4, 10, -1, -1 },
		{ 12, 768, 12, 1024, 50257, 50256, 50256 }, { 5, 48, 3, 7, 131, -1, -1 } };
	for (size_t c = 0; c < sizeof configs / sizeof configs[0]; c++) {
		const struct gpt2_config *config = &configs[c];
		const struct model_config same = { .kind = MODEL_GPT2,
			.layers = (int)config->layers,
			.width = (int)config->width,
			.heads = (int)config->heads,
			.context = (int)config->context,
			.vocabulary = (int)config->vocabulary };
		struct err err;
		AUTO_FREE struct gpt2_tensor *tensors = NULL;
		size_t count;
		struct model *model = model_create(&same, &err);
		assert_non_null(model);
		const struct tensor_table *table = model_tensors(model);
		assert_int_equal(gpt2_check(config, "test", &err), 0);
		assert_int_equal(gpt2_tensors(config, &tensors, &count, &err), 0);
		assert_int_equal(count, table->count);
		for (size_t i = 0; i < count; i++) {
			const struct tensor *row = tensor_table_find(table, tensors[i].name);
			if (!row)
				fail_msg("the trainer has no %s", tensors[i].name);
			assert_int_equal(row->dims, tensors[i].dims);
			assert_int_equal(row->shape[0], tensors[i].shape[0]);
			assert_int_equal(row->shape[1], tensors[i].shape[1]);
			assert_int_equal(row->count, tensors[i].elements);
		}
		model_destroy(model);
	}
}

static void what_is_encoded_parses_back(void **state)
{
	const struct gpt2_config configs[] = { { 2, 64, 4, 32, 100, -1, -1 },
		{ 3, 64, 4, 32, 60000, 50256, 7 } };
	for (int i = 0; i < 2; i++) {
		struct gpt2_config found;
		struct err err;
		json_t *json = gpt2_config_json(&configs[i], "float32");
		AUTO_FREE char *text = json_dumps(json, 0);
		json_decref(json);
		if (gpt2_config_parse(text, strlen(text), &found, &err) < 0)
			fail_msg("%s", err.text);
		assert_memory_equal(&found, &configs[i], sizeof found);
	}
}

static void missing_members_are_those_of_the_small_model(void **state)
{
	static const char text[] = "{\"model_type\": \"gpt2\", \"layer_norm_epsilon\": 0.00001, "
							   "\"n_inner\": null, \"other\": 1}";
	struct gpt2_config found;
	struct err err;
	assert_int_equal(gpt2_config_parse(text, strlen(text), &found, &err), 0);
	assert_true(found.layers == 12 && found.width == 768 && found.heads == 12
		&& found.context == 1024 && found.vocabulary == 50257 && found.end == -1);
}

static void refuses(const char *members, const char *why)
{
	char text[300];
	struct gpt2_config found;
	struct err err;
	snprintf(text, sizeof text, "{%s}", members);
	if (gpt2_config_parse(text, strlen(text), &found, &err) == 0)
		fail_msg("accepted: %s", text);
	if (!strstr(err.text, why))
		fail_msg("%s: refused with \"%s\", not \"%s\"", text, err.text, why);
	assert_int_equal(err.status, EXIT_DATA);
}

static void other_models_are_refused(void **state)
{
	refuses("\"model_type\"", "not valid JSON");
	refuses("", "does not name a model_type");
	refuses("\"model_type\": \"llama\"", "model_type is \"llama\"");
	refuses("\"model_type\": \"gpt2\", \"activation_function\": \"gelu\"", "activation_function");
	refuses("\"model_type\": \"gpt2\", \"tie_word_embeddings\": false", "tie_word_embeddings");
	refuses("\"model_type\": \"gpt2\", \"scale_attn_weights\": false", "scale_attn_weights");
	refuses("\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true",
		"scale_attn_by_inverse_layer_idx");
	refuses("\"model_type\": \"gpt2\", \"add_cross_attention\": true", "add_cross_attention");
	refuses("\"model_type\": \"gpt2\", \"layer_norm_epsilon\": 1e-6", "layer_norm_epsilon");
	refuses("\"model_type\": \"gpt2\", \"n_inner\": 3000", "n_inner");
	refuses("\"model_type\": \"gpt2\", \"n_layer\": \"12\"", "n_layer is no integer");
	refuses("\"model_type\": \"gpt2\", \"n_layer\": 0", "layers is 0");
	refuses("\"model_type\": \"gpt2\", \"n_embd\": 4611686018427387904", "width");
	refuses("\"model_type\": \"gpt2\", \"n_head\": 5", "no multiple");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_the_trainers),
		cmocka_unit_test(what_is_encoded_parses_back),
		cmocka_unit_test(missing_members_are_those_of_the_small_model),
		cmocka_unit_test(other_models_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
