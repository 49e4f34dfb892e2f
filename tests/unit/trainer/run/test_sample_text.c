/* SPDX-License-Identifier: Apache-2.0 */
/* sample_text: one line from weights in memory, the same from a device's as from the host's. That
 * it is muster-generate's, tests/sample_text.bats shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/fakes/device_memory_ops.h"
#include "trainer/run/sample_text.h"

static struct model *make_model(int vocabulary)
{
	const struct model_config config = { .kind = MODEL_GPT2,
		.layers = 2,
		.width = 12,
		.heads = 3,
		.context = 10,
		.vocabulary = vocabulary };
	return model_create(&config, NULL);
}

static char *line_of(struct ops *ops, const struct settings *settings, uint64_t seed)
{
	struct model *model = make_model(256);
	const struct tensor_table *table = model_tensors(model);
	const size_t bytes = table->elements * sizeof(float);
	float *host = calloc(table->elements, sizeof *host), *weights = host;
	char *line = NULL;
	struct err err = { 0 };
	tensor_table_init(table, seed, host);
	if (device_has_memory(ops->device)) {
		weights = ops->device->alloc(ops->device, bytes);
		ops->device->copy_in(ops->device, weights, host, bytes);
	}
	struct sample_text *sample = sample_text_open(settings, model, &err);
	if (!sample || sample_text_write(sample, ops->device, weights, &line, &err) < 0)
		fail_msg("%s", err.text);
	sample_text_close(sample);
	if (weights != host)
		ops->device->release(ops->device, weights);
	free(host);
	model_destroy(model);
	ops->destroy(ops);
	return line;
}

static void the_line_depends_on_the_weights_alone(void **state)
{
	const struct settings settings = { .sample_tokens = 30, .sample_prompt = "a\nb" };
	char *host = line_of(ops_cpu_create(true, NULL), &settings, 1);
	char *device = line_of(device_memory_ops_create(NULL), &settings, 1);
	char *other = line_of(ops_cpu_create(true, NULL), &settings, 2);
	assert_memory_equal(host, "a\\nb", 4);
	assert_null(strchr(host, '\n'));
	assert_true(strlen(host) >= 4 + 30);
	assert_string_equal(host, device);
	assert_string_not_equal(host, other);
	free(host);
	free(device);
	free(other);
}

static void without_a_prompt_it_goes_on_from_a_new_line(void **state)
{
	const struct settings none = { .sample_tokens = 30 };
	const struct settings line_feed = { .sample_tokens = 30, .sample_prompt = "\n" };
	char *first = line_of(ops_cpu_create(true, NULL), &none, 1);
	char *second = line_of(ops_cpu_create(true, NULL), &line_feed, 1);
	assert_string_equal(first, second + strlen("\\n")); /* a prompt is part of the line */
	free(first);
	free(second);
}

static void a_model_that_it_cannot_spell_is_refused(void **state)
{
	const struct settings settings = { .sample_tokens = 30 };
	struct err err = { 0 };
	struct model *model = make_model(64);
	assert_null(sample_text_open(&settings, model, &err));
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "--tokenizer that made them, or leave --sample-every out"));
	model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_line_depends_on_the_weights_alone),
		cmocka_unit_test(without_a_prompt_it_goes_on_from_a_new_line),
		cmocka_unit_test(a_model_that_it_cannot_spell_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
