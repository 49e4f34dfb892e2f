/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the tensor table among the writers, as the checkpoint's files will be divided. */
#include "trainer/state/layout.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "checkpoint/save/shard_plan.h"
#include "common/auto.h"

static void add_slice(struct layout *layout, const struct tensor *row, size_t first, size_t count,
	int writer)
{
	layout->slice_at[layout->slice_count] = row->offset + first;
	layout->slices[layout->slice_count++] = (struct snapshot_slice) { .tensor = row->name,
		.first = first,
		.count = count,
		.writer = writer };
}

/* Adds the slices of the parameters that a shard holds. */
static void add_shard(struct layout *layout, const struct zero_shard *shard)
{
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		const struct zero_shard run = zero_shard_of(shard, row);
		if (run.first < run.end)
			add_slice(layout, row, run.first - row->offset, run.end - run.first, shard->rank);
	}
}

static void describe(struct layout *layout, const int *writer, const struct zero_shard *shards,
	size_t shard_count)
{
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		struct snapshot_tensor *tensor = &layout->tensors[i];
		bool counts = row->role == TENSOR_COUNTER; /* one int64 scalar in files */
		*tensor = (struct snapshot_tensor) { .name = row->name,
			.dtype = counts ? SAFETENSORS_I64 : SAFETENSORS_F32,
			.dims = counts ? 0 : row->dims,
			.writer = writer[i] };
		for (int d = 0; d < tensor->dims; d++)
			tensor->shape[d] = row->shape[d];
		if (row->role == TENSOR_PARAMETER && !shards)
			add_slice(layout, row, 0, row->count, writer[i]);
	}
	for (size_t i = 0; i < shard_count; i++)
		add_shard(layout, &shards[i]);
}

static bool is_own(const struct layout *layout, int i)
{
	return layout->tensors[i].writer == layout->part;
}

/* Finds the run of this part's elements, up to where the next part's begin. */
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

static int by_place(const void *a, const void *b)
{
	const struct zero_shard *one = a, *other = b;
	return one->first < other->first ? -1 : one->first > other->first;
}

static void keep(struct layout *layout, int s, size_t first, size_t end)
{
	if (first < end)
		layout->kept[s][layout->kept_count[s]++] = (struct zero_shard) { layout->part, first, end };
}

/* Sorts the runs kept of an arena, and joins those that overlap or touch. */
static void join_kept(struct layout *layout, int s)
{
	struct zero_shard *kept = layout->kept[s];
	size_t joined = 0;
	qsort(kept, layout->kept_count[s], sizeof *kept, by_place);
	for (size_t i = 0; i < layout->kept_count[s]; i++) {
		if (joined == 0 || kept[i].first > kept[joined - 1].end)
			kept[joined++] = kept[i];
		else if (kept[i].end > kept[joined - 1].end)
			kept[joined - 1].end = kept[i].end;
	}
	layout->kept_count[s] = joined;
}

static int find_kept(struct layout *layout, const struct zero_shard *shards, size_t shard_count)
{
	for (int s = 0; s < SNAPSHOT_STATES; s++) {
		layout->kept[s] = calloc(shard_count + 1, sizeof *layout->kept[s]);
		if (!layout->kept[s])
			return -1;
		if (s == SNAPSHOT_MASTER || !shards)
			keep(layout, s, layout->first, layout->end);
		for (size_t i = 0; i < shard_count; i++)
			if (shards[i].rank == layout->part)
				keep(layout, s, shards[i].first, shards[i].end);
		join_kept(layout, s);
	}
	return 0;
}

static int divide(struct layout *layout, int writers, const struct zero_shard *shards,
	size_t shard_count)
{
	size_t count = (size_t)layout->table->count;
	AUTO_FREE uint64_t *bytes = calloc(count, sizeof *bytes);
	AUTO_FREE int *writer = calloc(count, sizeof *writer);
	if (!bytes || !writer)
		return -1;
	for (size_t i = 0; i < count; i++)
		bytes[i] = SNAPSHOT_STATES * sizeof(float) * (uint64_t)layout->table->rows[i].count;
	shard_plan_assign(bytes, count, writers, writer);
	layout->parts = writer[count - 1] + 1;
	if (shard_count > 0 && shards[shard_count - 1].rank >= layout->parts)
		layout->parts = shards[shard_count - 1].rank + 1;
	if (layout->part >= layout->parts)
		layout->part = -1;
	describe(layout, writer, shards, shard_count);
	find_own(layout);
	return find_kept(layout, shards, shard_count);
}

int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers,
	const struct zero_shard *shards, size_t shard_count, struct err *err)
{
	/* Each slice ends with a row or with a shard, so this is enough. */
	size_t count = (size_t)table->count, slices = count + shard_count;
	*layout = (struct layout) { .table = table,
		.part = part,
		.tensors = calloc(count, sizeof *layout->tensors),
		.slices = calloc(slices, sizeof *layout->slices),
		.slice_at = calloc(slices, sizeof *layout->slice_at) };
	if (layout->tensors && layout->slices && layout->slice_at
		&& divide(layout, writers, shards, shard_count) == 0)
		return 0;
	layout_clear(layout);
	return err_set(err, "checkpoint: out of memory for the layout of the state");
}

void layout_clear(struct layout *layout)
{
	free(layout->tensors);
	free(layout->slices);
	free(layout->slice_at);
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		free(layout->kept[s]);
	*layout = (struct layout) { 0 };
}

size_t layout_own_bytes(const struct layout *layout)
{
	size_t elements = 0;
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = 0; i < layout->kept_count[s]; i++)
			elements += layout->kept[s][i].end - layout->kept[s][i].first;
	return elements * sizeof(float);
}

void layout_place(struct layout *layout, const void *base)
{
	for (int i = 0; i < layout->table->count; i++)
		if (is_own(layout, i))
			layout->tensors[i].data = (const float *)base + layout->table->rows[i].offset;
	for (size_t i = 0; i < layout->slice_count; i++)
		for (int s = 0; layout->slices[i].writer == layout->part && s < SNAPSHOT_STATES; s++)
			layout->slices[i].state[s] =
				(const float *)base + (size_t)s * layout->table->elements + layout->slice_at[i];
}
