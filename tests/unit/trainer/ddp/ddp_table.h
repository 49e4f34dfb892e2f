/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of the tests of ddp. Included by each once, after cmocka.h. */
#ifndef MUSTER_TESTS_DDP_TABLE_H
#define MUSTER_TESTS_DDP_TABLE_H

#include <stdio.h>

#include "trainer/model/tensors.h"

#define LAYERS 4

static inline void add_row(struct tensor_table *table, const char *name, int64_t rows,
	int64_t columns, int64_t padded, int layer)
{
	struct tensor row = { .dims = 2,
		.shape = { rows, columns },
		.padded = { padded, columns },
		.layer = layer };
	struct err err;

	snprintf(row.name, sizeof row.name, "%s", name);
	if (tensor_table_add(table, &row, &err) < 0)
		fail_msg("%s", err.text);
}

/* Odd sizes, a tensor of several norm blocks, one of whole blocks only, one of less than one,
 * padded rows, several tensors in a layer. */
static inline void make_table(struct tensor_table *table)
{
	add_row(table, "norm.weight", 1, 33, 1, 0);
	add_row(table, "head.weight", 123, 777, 128, 0);
	add_row(table, "fc.weight", 256, 256, 256, 1);
	add_row(table, "fc.bias", 1, 1, 1, 1);
	add_row(table, "attn.weight", 401, 1000, 401, 2);
	add_row(table, "embedding.weight", 1001, 33, 1024, 3);
}

/* The last tensor is an embedding whose head has a gradient of its own. */
static inline void split_last(struct tensor_table *table)
{
	const struct tensor *last = &table->rows[table->count - 1];

	table->split_offset = last->offset;
	table->split_count = (size_t)(last->padded[0] * last->padded[1]);
}

#endif
