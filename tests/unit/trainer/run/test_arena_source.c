/* SPDX-License-Identifier: Apache-2.0 */
/* arena_source: weights that were read into an arena are handed on as they came, also from memory
 * that the host can't touch; and what does not fit the model is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/fakes/device_memory_ops.h"
#include "trainer/run/arena_source.h"

/* The vocabulary is padded, and no size is a multiple of the others' alignment. */
static const struct gpt2_config config = { .layers = 2,
	.width = 12,
	.heads = 3,
	.context = 5,
	.vocabulary = 37,
	.begin = -1,
	.end = -1 };

static float weight(const struct gpt2_tensor *tensor, uint64_t element)
{
	return (float)(1 + (int)tensor->part * 100000 + (tensor->layer + 1) * 10000 + (int)element);
}

static int give(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	(void)source;
	(void)err;
	for (uint64_t i = 0; i < tensor->elements; i++)
		out[i] = weight(tensor, i);
	return 0;
}

static struct model *model_of(const struct gpt2_config *some)
{
	const struct model_config model = arena_source_model(some);
	return model_create(&model, NULL);
}

static void check(struct ops *ops)
{
	struct model_source from = { .config = config, .read = give };
	struct model *model = model_of(&config);
	const struct tensor_table *table = model_tensors(model);
	const size_t bytes = table->elements * sizeof(float);
	float *host = calloc(table->elements, sizeof *host), *arena = host, sum = 0;
	struct gpt2_tensor *tensors;
	struct err err;
	size_t count, filled = 0;
	assert_int_equal(arena_source_fill(&from, table, host, &err), 0);
	for (size_t i = 0; i < table->elements; i++)
		filled += host[i] != 0;
	assert_int_equal(filled, table->parameters); /* the gaps stay zero */
	if (device_has_memory(ops->device)) {
		arena = ops->device->alloc(ops->device, bytes);
		ops->device->copy_in(ops->device, arena, host, bytes);
	}
	struct model_source *source = arena_source_open(&config, table, ops->device, arena);
	assert_int_equal(gpt2_tensors(&source->config, &tensors, &count, &err), 0);
	for (size_t i = 0; i < count; i++) {
		float *values = calloc(tensors[i].elements, sizeof *values);
		assert_int_equal(source->read(source, &tensors[i], values, &err), 0);
		for (uint64_t k = 0; k < tensors[i].elements; k++)
			sum += values[k] != weight(&tensors[i], k);
		free(values);
	}
	assert_true(sum == 0);
	source->close(source);
	if (arena != host)
		ops->device->release(ops->device, arena);
	free(tensors);
	free(host);
	model_destroy(model);
	ops->destroy(ops);
}

static void weights_come_back_from_the_hosts_memory(void **state)
{
	check(ops_cpu_create(true, NULL));
}

static void weights_come_back_from_a_devices_memory(void **state)
{
	check(device_memory_ops_create(NULL));
}

static void another_model_is_refused(void **state)
{
	struct gpt2_config other = config;
	struct err err;
	float *nothing = NULL;
	struct model_source from = { .config = config, .read = give };
	for (int i = 0; i < 2; i++) {
		other = config;
		other.layers += i == 0;
		other.context += i == 1;
		struct model *model = model_of(&other);
		nothing = calloc(model_tensors(model)->elements, sizeof *nothing);
		assert_int_equal(arena_source_fill(&from, model_tensors(model), nothing, &err), -1);
		assert_non_null(strstr(err.text, "the trainer's model"));
		free(nothing);
		model_destroy(model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(weights_come_back_from_the_hosts_memory),
		cmocka_unit_test(weights_come_back_from_a_devices_memory),
		cmocka_unit_test(another_model_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
