/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the weights that a GPT-2 training begins with, as fp32 in a safetensors file with Hugging
 * Face's names, so that a peer under comparison begins with the same weights.
 *     initial_weights LAYERS WIDTH HEADS CONTEXT VOCABULARY SEED FILE */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/format/safetensors.h"
#include "common/auto.h"
#include "common/io.h"
#include "common/number.h"
#include "trainer/model/model.h"

static int write_data(int fd, const struct tensor_table *table, const float *arena)
{
	for (int i = 0; i < table->count; i++)
		if (io_write_full(fd, arena + table->rows[i].offset, table->rows[i].count * sizeof *arena)
			< 0)
			return -1;
	return 0;
}

static int write_file(const struct tensor_table *table, const float *arena, const char *path,
	struct err *err)
{
	AUTO_FREE struct safetensors_tensor *tensors = calloc((size_t)table->count, sizeof *tensors);
	AUTO_FREE char *prefix = NULL;
	size_t size;
	uint64_t data;
	if (!tensors)
		return err_set(err, "out of memory");
	for (int i = 0; i < table->count; i++) {
		struct tensor *row = &table->rows[i];
		tensors[i] = (struct safetensors_tensor) { .name = row->name,
			.dtype = SAFETENSORS_F32,
			.dims = row->dims,
			.shape = { row->shape[0], row->shape[1] } };
	}
	if (safetensors_encode(tensors, (size_t)table->count, NULL, 0, &prefix, &size, &data, err) < 0)
		return -1;
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0 || io_write_full(fd, prefix, size) < 0 || write_data(fd, table, arena) < 0)
		return err_set(err, "couldn't write %s: %m", path);
	return 0;
}

int main(int argc, char **argv)
{
	struct err err = { 0 };
	int64_t n[6];
	for (int i = 0; i < 6; i++)
		if (argc != 8 || !number_whole(argv[i + 1], 1, 1 << 24, &n[i])) {
			fputs("usage: initial_weights LAYERS WIDTH HEADS CONTEXT VOCABULARY SEED FILE\n",
				stderr);
			return EXIT_USAGE;
		}
	struct model *model = model_create(&(struct model_config) { .kind = MODEL_GPT2,
										   .layers = (int)n[0],
										   .width = (int)n[1],
										   .heads = (int)n[2],
										   .context = (int)n[3],
										   .vocabulary = (int)n[4] },
		&err);
	float *arena = model ? calloc(model_tensors(model)->elements, sizeof *arena) : NULL;
	if (model && !arena)
		err_set(&err, "out of memory");
	if (arena) {
		tensor_table_init(model_tensors(model), (uint64_t)n[5], arena);
		write_file(model_tensors(model), arena, argv[7], &err);
	}
	if (err.text[0])
		fprintf(stderr, "initial_weights: %s\n", err.text);
	free(arena);
	model_destroy(model);
	return err.text[0] ? EXIT_FAULT : EXIT_OK;
}
