/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor table, divided among the writers as the checkpoint's files will be. */
#include "trainer/layout.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "checkpoint/shard_plan.h"
#include "common/auto.h"

/* A counter is one int64 in the files. */
static void describe_tensor(const struct tensor *row, struct snapshot_tensor *tensor)
{
	*tensor = (struct snapshot_tensor){ .name = row->name, .dtype = SAFETENSORS_I64 };
	if (row->role == TENSOR_COUNTER)
		return;
	tensor->dtype = SAFETENSORS_F32;
	tensor->dims = row->dims;
	for (int d = 0; d < row->dims; d++)
		tensor->shape[d] = row->shape[d];
}

static void describe(struct layout *layout, const int *writer)
{
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		describe_tensor(row, &layout->tensors[i]);
		layout->tensors[i].writer = writer[i];
		if (row->role == TENSOR_PARAMETER)
			layout->slices[layout->slice_count++] = (struct snapshot_slice){ .tensor = row->name, .count = row->count,
				.writer = writer[i] };
	}
}

static bool is_own(const struct layout *layout, int i)
{
	return layout->tensors[i].writer == layout->part;
}

/* The run of this part's elements, as far as to the next part's. */
static void find_own(struct layout *layout)
{
	const struct tensor_table *table = layout->table;
	for (int i = table->count - 1; i >= 0; i--) {
		if (!is_own(layout, i))
			continue;
		if (layout->end == 0)
			layout->end = i + 1 < table->count ? table->rows[i + 1].offset : table->elements;
		layout->first = table->rows[i].offset;
	}
}

static int divide(struct layout *layout, int writers, struct err *err)
{
	size_t count = (size_t)layout->table->count;
	AUTO_FREE uint64_t *bytes = calloc(count, sizeof *bytes);
	AUTO_FREE int *writer = calloc(count, sizeof *writer);
	if (!bytes || !writer)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < count; i++)
		bytes[i] = SNAPSHOT_STATES * sizeof(float) * (uint64_t)layout->table->rows[i].count;
	shard_plan_assign(bytes, count, writers, writer);
	layout->parts = writer[count - 1] + 1;
	if (layout->part >= layout->parts)
		layout->part = -1;
	describe(layout, writer);
	find_own(layout);
	return 0;
}

int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers, struct err *err)
{
	size_t count = (size_t)table->count;
	*layout = (struct layout){ .table = table, .part = part, .tensors = calloc(count, sizeof *layout->tensors),
		.slices = calloc(count, sizeof *layout->slices) };
	if (layout->tensors && layout->slices && divide(layout, writers, err) == 0)
		return 0;
	layout_clear(layout);
	return err_set(err, "checkpoint: out of memory for the layout of the state");
}

void layout_clear(struct layout *layout)
{
	free(layout->tensors);
	free(layout->slices);
	*layout = (struct layout){ 0 };
}

void layout_place(struct layout *layout, const void *base)
{
	struct snapshot_slice *slice = layout->slices;
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		struct snapshot_slice *own = row->role == TENSOR_PARAMETER ? slice++ : NULL;
		if (!is_own(layout, i))
			continue;
		layout->tensors[i].data = (const float *)base + row->offset;
		for (int s = 0; own && s < SNAPSHOT_STATES; s++)
			own->state[s] = (const float *)base + (size_t)s * layout->table->elements + row->offset;
	}
}
