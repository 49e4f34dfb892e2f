/* SPDX-License-Identifier: Apache-2.0 */
/* What token files and tables have in common: life time, identity, and filling a batch. */
#include "trainer/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "trainer/dataset_private.h"

#define WINDOWS 64
#define WINDOW_BYTES 65536

struct dataset *dataset_create(struct err *err)
{
	struct dataset *dataset = calloc(1, sizeof *dataset);
	if (!dataset) {
		err_set(err, "data: no memory for a data set");
		return NULL;
	}
	dataset->references = 1;
	return dataset;
}

const struct dataset *dataset_hold(const struct dataset *dataset)
{
	__atomic_fetch_add(&((struct dataset *)dataset)->references, 1, __ATOMIC_RELAXED);
	return dataset;
}

void dataset_close(struct dataset *dataset)
{
	if (!dataset || __atomic_sub_fetch(&dataset->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	for (int i = 0; i < 2; i++)
		mapping_close(&dataset->files[i]);
	free(dataset);
}

static void hash_file(struct hasher *hasher, const struct mapping *file, size_t header)
{
	unsigned char size[8];
	bytes_put_le64(size, file->size);
	hasher_add(hasher, size, sizeof size);
	hasher_add(hasher, file->bytes, header);
	if (file->size <= WINDOWS * WINDOW_BYTES) {
		hasher_add(hasher, file->bytes, file->size);
		return;
	}
	for (uint64_t i = 0; i < WINDOWS; i++)
		hasher_add(hasher, file->bytes + i * (file->size - WINDOW_BYTES) / (WINDOWS - 1), WINDOW_BYTES);
}

int dataset_identify(struct dataset *dataset, struct err *err)
{
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "data: no memory to hash %s", dataset->files[0].path);
	for (int i = 0; i < dataset->file_count; i++)
		hash_file(hasher, &dataset->files[i], dataset->headers[i]);
	dataset->identity = hasher_value(hasher);
	hasher_destroy(hasher);
	return 0;
}

struct hash128 dataset_identity(const struct dataset *dataset)
{
	return dataset->identity;
}

uint64_t dataset_samples(const struct dataset *dataset)
{
	return dataset->samples;
}

int dataset_features(const struct dataset *dataset)
{
	return dataset->features;
}

uint64_t dataset_tokens(const struct dataset *dataset)
{
	return dataset->tokens;
}

static void *alloc_array(size_t rows, size_t columns)
{
	size_t bytes = (rows * columns * 4 + 63) / 64 * 64; /* rows and columns are ints: no overflow in 64 bits */
	void *array = aligned_alloc(64, bytes);
	if (array)
		memset(array, 0, bytes);
	return array;
}

struct batch *batch_alloc(const struct dataset *dataset, int samples, struct err *err)
{
	struct batch *batch = samples > 0 ? calloc(1, sizeof *batch) : NULL;
	if (!batch) {
		err_set(err, "data: couldn't make a batch of %d samples", samples);
		return NULL;
	}
	batch->samples = samples;
	batch->positions = dataset->positions ? dataset->positions : 1;
	batch->features = dataset->features;
	batch->targets = alloc_array((size_t)samples, (size_t)batch->positions);
	if (dataset->features)
		batch->inputs = alloc_array((size_t)samples, (size_t)batch->features);
	else
		batch->tokens = alloc_array((size_t)samples, (size_t)batch->positions);
	if (!batch->targets || !(batch->inputs || batch->tokens)) {
		err_set(err, "data: no memory for a batch of %d samples", samples);
		batch_free(batch);
		return NULL;
	}
	return batch;
}

void batch_free(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->tokens);
	free(batch->inputs);
	free(batch->targets);
	free(batch);
}

/* A row that counts nowhere: zeros that every op can work on, and no target. */
static void clear_row(struct batch *batch, int row)
{
	size_t positions = (size_t)batch->positions, features = (size_t)batch->features;
	if (batch->tokens)
		memset(batch->tokens + (size_t)row * positions, 0, positions * sizeof *batch->tokens);
	if (batch->inputs)
		memset(batch->inputs + (size_t)row * features, 0, features * sizeof *batch->inputs);
	for (size_t i = 0; i < positions; i++)
		batch->targets[(size_t)row * positions + i] = -1;
}

int dataset_read(const struct dataset *dataset, const uint64_t *samples, int count, int vocabulary, struct batch *batch,
	struct err *err)
{
	if (count > batch->samples)
		return err_set(err, "data: %d samples do not go into a batch of %d", count, batch->samples);
	for (int row = 0; row < batch->samples; row++) {
		uint64_t sample = row < count ? samples[row] : SAMPLER_NONE;
		if (sample == SAMPLER_NONE) {
			clear_row(batch, row);
			continue;
		}
		if (sample >= dataset->samples)
			return err_set(err, "data: sample %llu of %s does not exist; it has %llu", (unsigned long long)sample,
				dataset->files[0].path, (unsigned long long)dataset->samples);
		int rc = dataset->features ? dataset_read_table(dataset, sample, vocabulary, batch, row, err)
			: dataset_read_tokens(dataset, sample, vocabulary, batch, row, err);
		if (rc < 0)
			return -1;
	}
	return 0;
}
