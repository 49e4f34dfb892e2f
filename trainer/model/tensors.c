/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor table: lays tensors out in the arenas and computes initial weights. */
#include "trainer/model/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "order/philox.h"

static size_t align_up(size_t n)
{
	return (n + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
}

/* Fills in what a row may leave out: the second dimension of a vector, and a padded shape equal to
 * the logical one. */
static void complete_shape(struct tensor *row)
{
	for (int d = row->dims; d < TENSOR_DIMS; d++)
		row->shape[d] = row->padded[d] = 1;
	for (int d = 0; d < row->dims; d++)
		if (row->padded[d] == 0)
			row->padded[d] = row->shape[d];
}

static int check_row(const struct tensor_table *table, const struct tensor *row, struct err *err)
{
	if (row->shape[0] < 1 || row->shape[1] < 1 || row->padded[0] < row->shape[0]
		|| row->padded[1] != row->shape[1])
		return err_set(err,
			"tensors: couldn't add %s: shape [%lld, %lld] can't be padded to [%lld, %lld]",
			row->name, (long long)row->shape[0], (long long)row->shape[1],
			(long long)row->padded[0], (long long)row->padded[1]);
	int64_t elements;
	if (__builtin_mul_overflow(row->padded[0], row->padded[1], &elements)
		|| elements > INT64_MAX / 64 || table->elements > (size_t)INT64_MAX / 64)
		return err_set(err, "tensors: couldn't add %s: too many elements", row->name);
	if (tensor_table_find(table, row->name))
		return err_set(err, "tensors: couldn't add %s: the name is taken", row->name);
	if (table->count > 0 && row->layer < table->rows[table->count - 1].layer)
		return err_set(err, "tensors: couldn't add %s: layer %d comes after layer %d", row->name,
			row->layer, table->rows[table->count - 1].layer);
	return 0;
}

int tensor_table_add(struct tensor_table *table, const struct tensor *row, struct err *err)
{
	struct tensor added = *row;
	if (row->name[0] == '\0' || !memchr(row->name, '\0', sizeof row->name))
		return err_set(err, "tensors: couldn't add a tensor: its name is empty or too long");
	if (row->dims < 1 || row->dims > TENSOR_DIMS)
		return err_set(err, "tensors: couldn't add %s: it has %d dimensions, not 1 or 2", row->name,
			row->dims);
	complete_shape(&added);
	if (check_row(table, &added, err) < 0)
		return -1;
	struct tensor *rows = realloc(table->rows, ((size_t)table->count + 1) * sizeof *rows);
	if (!rows)
		return err_set(err, "tensors: couldn't add %s: out of memory", row->name);
	table->rows = rows;
	added.offset = table->elements;
	added.count = (size_t)(added.shape[0] * added.shape[1]);
	table->elements = align_up(added.offset + (size_t)(added.padded[0] * added.padded[1]));
	table->parameters += added.role == TENSOR_PARAMETER ? added.count : 0;
	rows[table->count++] = added;
	return 0;
}

void tensor_table_clear(struct tensor_table *table)
{
	free(table->rows);
	*table = (struct tensor_table) { 0 };
}

const struct tensor *tensor_table_find(const struct tensor_table *table, const char *name)
{
	for (int i = 0; i < table->count; i++)
		if (strcmp(table->rows[i].name, name) == 0)
			return &table->rows[i];
	return NULL;
}

/* Maps a word to a number inside (0, 1), never 0, so that its logarithm exists. */
static double unit(uint32_t word)
{
	return (word + 0.5) * 0x1p-32;
}

/* Box and Muller, "A note on the generation of random normal deviates" (1958): two words, two
 * normal values. */
static void box_muller(const uint32_t words[2], double out[2])
{
	double radius = sqrt(-2.0 * log(unit(words[0])));
	double angle = 2.0 * M_PI * unit(words[1]);
	out[0] = radius * cos(angle);
	out[1] = radius * sin(angle);
}

/* Computes the initial values of the four elements from 4·block on. */
static void init_block(const struct tensor *row, int place, uint64_t seed, uint64_t block,
	float out[4])
{
	const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)place,
		PHILOX_INIT };
	const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	uint32_t words[4];
	double values[4];
	philox(counter, key, words);
	if (row->init == TENSOR_NORMAL) {
		box_muller(words, values);
		box_muller(words + 2, values + 2);
	} else {
		for (int i = 0; i < 4; i++)
			values[i] = 2.0 * unit(words[i]) - 1.0;
	}
	for (int i = 0; i < 4; i++)
		out[i] = (float)(values[i] * (double)row->init_std);
}

static void init_random(const struct tensor *row, int place, uint64_t seed, float *weights)
{
	int64_t blocks = (int64_t)((row->count + 3) / 4);
#pragma omp parallel for schedule(static)
	for (int64_t block = 0; block < blocks; block++) {
		float values[4];
		size_t first = (size_t)block * 4;
		size_t n = row->count - first < 4 ? row->count - first : 4;
		init_block(row, place, seed, (uint64_t)block, values);
		memcpy(weights + first, values, n * sizeof *values);
	}
}

void tensor_table_init(const struct tensor_table *table, uint64_t seed, float *arena)
{
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		float *weights = arena + row->offset;
		size_t end = i + 1 < table->count ? table->rows[i + 1].offset : table->elements;
		memset(weights, 0, (end - row->offset) * sizeof *weights);
		if (row->init == TENSOR_ONE)
			for (size_t k = 0; k < row->count; k++)
				weights[k] = 1.0f;
		else if (row->init != TENSOR_ZERO)
			init_random(row, i, seed, weights);
	}
}
