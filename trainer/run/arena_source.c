/* SPDX-License-Identifier: Apache-2.0 */
/* Both sides name the tensors alike; only rows are padded, so a tensor lies in an arena without
 * gaps. */
#include "trainer/run/arena_source.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"

struct arena_source {
	struct model_source source; /* must be the first member */
	const struct tensor_table *table;
	struct device *device;
	const float *arena;
};

struct model_config arena_source_model(const struct gpt2_config *config)
{
	return (struct model_config) { .kind = MODEL_GPT2,
		.layers = (int)config->layers,
		.width = (int)config->width,
		.heads = (int)config->heads,
		.context = (int)config->context,
		.vocabulary = (int)config->vocabulary };
}

static const struct tensor *find(const struct tensor_table *table, const struct gpt2_tensor *tensor,
	struct err *err)
{
	const struct tensor *row = tensor_table_find(table, tensor->name);
	if (!row || row->count != tensor->elements)
		err_set(err, "model: the trainer's model has no tensor %s of this size", tensor->name);
	return row && row->count == tensor->elements ? row : NULL;
}

int arena_source_fill(struct model_source *source, const struct tensor_table *table, float *arena,
	struct err *err)
{
	AUTO_FREE struct gpt2_tensor *tensors = NULL;
	size_t count;
	if (gpt2_tensors(&source->config, &tensors, &count, err) < 0)
		return -1;
	if (count != (size_t)table->count)
		return err_set(err, "model: it has %zu tensors, and the trainer's model %d", count,
			table->count);
	for (size_t i = 0; i < count; i++) {
		const struct tensor *row = find(table, &tensors[i], err);
		if (!row || source->read(source, &tensors[i], arena + row->offset, err) < 0)
			return -1;
	}
	return 0;
}

static int read_tensor(struct model_source *source, const struct gpt2_tensor *tensor, float *out,
	struct err *err)
{
	const struct arena_source *from = (const struct arena_source *)source;
	const struct tensor *row = find(from->table, tensor, err);
	if (!row)
		return -1;
	const size_t bytes = row->count * sizeof *out;
	if (!device_has_memory(from->device)) {
		memcpy(out, from->arena + row->offset, bytes);
		return 0;
	}
	from->device->copy_out(from->device, out, from->arena + row->offset, bytes);
	return device_check(from->device, err);
}

static void close_source(struct model_source *source)
{
	free(source);
}

struct model_source *arena_source_open(const struct gpt2_config *config,
	const struct tensor_table *table, struct device *device, const float *arena)
{
	struct arena_source *from = malloc(sizeof *from);
	if (!from)
		return NULL;
	*from = (struct arena_source) {
		.source = { .config = *config, .read = read_tensor, .close = close_source },
		.table = table,
		.device = device,
		.arena = arena
	};
	return &from->source;
}
