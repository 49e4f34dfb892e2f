/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor table with odd sizes and padding: tensors that share a page, some of many pages, one
 * larger than all others. Include after cmocka.h. */
#ifndef MUSTER_TEST_ODD_TABLE_H
#define MUSTER_TEST_ODD_TABLE_H

#include <stdio.h>

#include "trainer/model/tensors.h"

static inline void odd_table_add(struct tensor_table *table, int64_t rows, int64_t columns,
	int64_t padded)
{
	struct tensor row = { .dims = 2,
		.shape = { rows, columns },
		.padded = { padded, columns },
		.decay = rows > 1,
		.init = TENSOR_NORMAL,
		.init_std = 1 };
	struct err err;
	snprintf(row.name, sizeof row.name, "tensor.%d", table->count);
	if (tensor_table_add(table, &row, &err) < 0)
		fail_msg("%s", err.text);
}

/* The caller ends it with tensor_table_clear. */
static inline void odd_table_make(struct tensor_table *table)
{
	odd_table_add(table, 1, 33, 1);
	odd_table_add(table, 123, 77, 128);
	odd_table_add(table, 1, 1, 1);
	odd_table_add(table, 301, 1000, 301);
	odd_table_add(table, 64, 64, 64);
	odd_table_add(table, 5, 7, 8);
}

#endif
