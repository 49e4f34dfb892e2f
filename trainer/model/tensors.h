/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor table has one row a tensor. It is the only description of a model's memory:
 * initialisation, buckets, optimizer, snapshot, resume and the names in files all follow it. */
#ifndef MUSTER_TENSORS_H
#define MUSTER_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define TENSOR_ALIGN 256 /* elements; every tensor's offset is a multiple */
#define TENSOR_DIMS 2

enum tensor_init {
	TENSOR_ZERO,
	TENSOR_ONE,
	TENSOR_NORMAL /* mean 0, deviation init_std */,
	TENSOR_UNIFORM /* ± init_std */
};

/* A tensor that is no parameter has neither a gradient nor optimizer state: the model counts it,
 * and it is saved with the weights. */
enum tensor_role {
	TENSOR_PARAMETER,
	TENSOR_STATISTIC, /* fp32 */
	TENSOR_COUNTER,   /* one int64 in the place of two fp32: shape [2]; a scalar in files */
};

struct tensor {
	char name[96];               /* Hugging Face's, such as transformer.h.0.attn.c_attn.weight */
	int dims;                    /* 1 or 2 */
	int64_t shape[TENSOR_DIMS];  /* logical */
	int64_t padded[TENSOR_DIMS]; /* ≥ shape; only the first dimension (rows) may be padded; padding
									stays zero */
	bool decay;                  /* weight decay applies; matrices decay, vectors do not */
	int layer;     /* tensors of a layer become ready together in the backward pass; 0 is first */
	size_t offset; /* first element in every arena */
	size_t count;  /* logical elements */
	enum tensor_init init;
	float init_std;
	enum tensor_role role;
};

/* Rows are in the order in which the backward pass finishes their gradients, so a bucket is a
 * contiguous run. */
struct tensor_table {
	struct tensor *rows;
	int count;
	size_t elements;   /* of one arena, with padding */
	size_t parameters; /* sum of `count` over all parameters */
	/* With a split embedding the head's part of its gradient is ready in layer 0, and lies after
	 * the rows in an arena of gradients: split_count elements, which are added to those at
	 * split_offset once both are reduced. 0 without. */
	size_t split_count, split_offset;
};

/* Elements of an arena of gradients. */
static inline size_t tensor_table_gradients(const struct tensor_table *table)
{
	return table->elements + table->split_count;
}

/* Number of distinct layers of the rows. */
static inline int tensor_table_layers(const struct tensor_table *table)
{
	return table->rows[table->count - 1].layer + 1;
}

/* Number of rows that are no parameters. */
static inline size_t tensor_table_others(const struct tensor_table *table)
{
	size_t others = 0;

	for (int i = 0; i < table->count; i++)
		others += table->rows[i].role != TENSOR_PARAMETER;
	return others;
}

/* Appends a copy of a row with its offset and count; a padded dimension of 0 means the shape's.
 * Refuses a name that exists and a layer below the last row's. The table owns its rows;
 * tensor_table_clear frees them. */
int tensor_table_add(struct tensor_table *table, const struct tensor *row, struct err *err);
void tensor_table_clear(struct tensor_table *table);
/* NULL when there is no tensor of that name. Borrowed. */
const struct tensor *tensor_table_find(const struct tensor_table *table, const char *name);

/* Writes the initial weights. Element `index` of a tensor is a pure function of (seed, the row's
 * place, index): Philox 4x32-10 (Salmon et al., SC'11), normal values by Box–Muller. Padding does
 * not shift them. `arena` is host memory. */
void tensor_table_init(const struct tensor_table *table, uint64_t seed, float *arena);

#endif
