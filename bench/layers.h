/* SPDX-License-Identifier: Apache-2.0 */
/* A table of gradients that belong to no model: layers of one size. */
#ifndef MUSTER_BENCH_LAYERS_H
#define MUSTER_BENCH_LAYERS_H

#include <stdio.h>

#include "common/err.h"
#include "trainer/model/tensors.h"

#define LAYERS 8

/* Adds the layers to an empty table, which the caller clears. */
static inline int layers_add(struct tensor_table *table, size_t megabytes, struct err *err)
{
	for (int layer = 0; layer < LAYERS; layer++) {
		struct tensor row = { .dims = 1,
			.shape = { (int64_t)(megabytes * 1000000 / sizeof(float) / LAYERS) },
			.layer = layer };

		snprintf(row.name, sizeof row.name, "layer.%d", layer);
		if (tensor_table_add(table, &row, err) < 0)
			return -1;
	}
	return 0;
}

#endif
