/* SPDX-License-Identifier: Apache-2.0 */
/* What token files and tables have in common: lifetime, identity, and filling a batch. */
#include "trainer/data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "common/bytes.h"
#include "trainer/data/dataset_private.h"

#define WINDOWS 64
#define WINDOW_BYTES 65536

struct dataset *dataset_create(const char *name, size_t shards, int shard_files, struct err *err)
{
	struct dataset *dataset = calloc(1, sizeof *dataset);
	if (dataset) {
		dataset->references = 1;
		dataset->name = strdup(name);
		dataset->shards = calloc(shards, sizeof *dataset->shards);
		dataset->shard_count = shards;
		dataset->shard_files = shard_files;
	}
	if (dataset && dataset->name && dataset->shards)
		return dataset;
	dataset_close(dataset);
	err_set(err, "data: no memory for a data set");
	return NULL;
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
	for (size_t i = 0; dataset->shards && i < dataset->shard_count; i++)
		for (int file = 0; file < 2; file++)
			mapping_close(&dataset->shards[i].files[file]);
	free(dataset->shards);
	free(dataset->name);
	free(dataset);
}

static void hash_file(struct hasher *hasher, const struct mapping *file, size_t header,
	uint64_t windows)
{
	unsigned char size[8];
	bytes_put_le64(size, file->size);
	hasher_add(hasher, size, sizeof size);
	hasher_add(hasher, file->bytes, header);
	if (file->size <= windows * WINDOW_BYTES) {
		hasher_add(hasher, file->bytes, file->size);
		return;
	}
	for (uint64_t i = 0; i < windows; i++)
		hasher_add(hasher, file->bytes + i * (file->size - WINDOW_BYTES) / (windows - 1),
			WINDOW_BYTES);
}

static int identify(struct dataset *dataset, struct err *err)
{
	/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a data set has shards */
	uint64_t windows = WINDOWS / dataset->shard_count;
	struct hasher *hasher = hasher_create();
	if (!hasher)
		return err_set(err, "data: no memory to hash %s", dataset->name);
	windows = windows > 2 ? windows : 2;
	for (size_t i = 0; i < dataset->shard_count; i++)
		for (int file = 0; file < dataset->shard_files; file++)
			hash_file(hasher, &dataset->shards[i].files[file], dataset->shards[i].headers[file],
				windows);
	dataset->identity = hasher_value(hasher);
	hasher_destroy(hasher);
	return 0;
}

int dataset_complete(struct dataset *dataset, struct err *err)
{
	for (size_t i = 0; i < dataset->shard_count; i++) {
		dataset->shards[i].first = dataset->samples;
		dataset->samples += dataset->shards[i].samples;
	}
	return identify(dataset, err);
}

struct hash128 dataset_identity(const struct dataset *dataset)
{
	return dataset->identity;
}

uint64_t dataset_samples(const struct dataset *dataset)
{
	return dataset->samples;
}

size_t dataset_shards(const struct dataset *dataset)
{
	return dataset->shard_count;
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
	size_t bytes =
		(rows * columns * 4 + 63) / 64 * 64; /* rows and columns are ints: no overflow in 64 bits */
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

/* Clears a row that does not count: zeros, which every op can compute with, and no target. */
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

/* Finds the shard that holds a sample: the last one that begins at it or before it. No shard is
 * empty. */
static const struct dataset_shard *shard_of(const struct dataset *dataset, uint64_t sample)
{
	size_t low = 0, high = dataset->shard_count;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (dataset->shards[middle].first <= sample)
			low = middle;
		else
			high = middle;
	}
	return &dataset->shards[low];
}

static int read_sample(const struct dataset *dataset, uint64_t sample, int vocabulary,
	struct batch *batch, int row, struct err *err)
{
	if (sample >= dataset->samples)
		return err_set(err, "data: sample %llu of %s does not exist; it has %llu",
			(unsigned long long)sample, dataset->name, (unsigned long long)dataset->samples);
	const struct dataset_shard *shard = shard_of(dataset, sample);
	sample -= shard->first;
	return dataset->features
		? dataset_read_table(dataset, shard, sample, vocabulary, batch, row, err)
		: dataset_read_tokens(dataset, shard, sample, vocabulary, batch, row, err);
}

int dataset_read(const struct dataset *dataset, const uint64_t *samples, int count, int vocabulary,
	struct batch *batch, struct err *err)
{
	if (count > batch->samples)
		return err_set(err, "data: %d samples do not go into a batch of %d", count, batch->samples);
	for (int row = 0; row < batch->samples; row++) {
		uint64_t sample = row < count ? samples[row] : SAMPLER_NONE;
		if (sample == SAMPLER_NONE)
			clear_row(batch, row);
		else if (read_sample(dataset, sample, vocabulary, batch, row, err) < 0)
			return -1;
	}
	return 0;
}
