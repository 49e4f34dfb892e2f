/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor table, cut into parts and shards as the checkpoint's writer will cut it, as offsets into a slot. */
#include "trainer/layout.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/shard_plan.h"
#include "common/auto.h"

static size_t align_page(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (bytes + page - 1) / page * page;
}

static void describe(struct layout *layout, const int *writer)
{
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		struct snapshot_tensor *tensor = &layout->tensors[i];
		*tensor = (struct snapshot_tensor){ .name = row->name, .dtype = SAFETENSORS_F32, .dims = row->dims,
			.writer = writer[i] };
		for (int d = 0; d < row->dims; d++)
			tensor->shape[d] = row->shape[d];
		layout->slices[i] = (struct snapshot_slice){ .tensor = row->name, .count = row->count, .writer = writer[i] };
	}
}

/* One shard: masters, m and v of its tensors one behind the other. */
static void place_group(struct layout *layout, const struct shard_group *group)
{
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		for (size_t i = group->first; i < group->first + group->count; i++) {
			layout->at[i][s] = layout->bytes;
			layout->bytes += layout->table->rows[i].count * sizeof(float);
		}
	layout->bytes = align_page(layout->bytes);
}

static int plan(struct layout *layout, int writers, uint64_t shard_size, struct err *err)
{
	size_t count = (size_t)layout->table->count;
	AUTO_FREE uint64_t *bytes = calloc(count, sizeof *bytes);
	AUTO_FREE int *writer = calloc(count, sizeof *writer);
	AUTO_FREE struct shard_group *groups = calloc(count, sizeof *groups);
	if (!bytes || !writer || !groups)
		return err_set(err, "checkpoint: out of memory");
	for (size_t i = 0; i < count; i++)
		bytes[i] = layout_tensor_bytes(&layout->table->rows[i]);
	shard_plan_assign(bytes, count, writers, writer);
	layout->parts = writer[count - 1] + 1;
	if (layout->part >= layout->parts)
		layout->part = -1;
	describe(layout, writer);
	size_t group_count = shard_plan_group(bytes, writer, count, shard_size, groups);
	for (size_t g = 0; g < group_count; g++)
		if (groups[g].writer == layout->part)
			place_group(layout, &groups[g]);
	return 0;
}

int layout_make(struct layout *layout, const struct tensor_table *table, int part, int writers, uint64_t shard_size,
	struct err *err)
{
	size_t count = (size_t)table->count;
	*layout = (struct layout){ .table = table, .part = part, .tensors = calloc(count, sizeof *layout->tensors),
		.slices = calloc(count, sizeof *layout->slices), .at = calloc(count, sizeof *layout->at) };
	if (layout->tensors && layout->slices && layout->at && plan(layout, writers, shard_size, err) == 0)
		return 0;
	layout_clear(layout);
	return err_set(err, "checkpoint: out of memory for the layout of the state");
}

void layout_clear(struct layout *layout)
{
	free(layout->tensors);
	free(layout->slices);
	free(layout->at);
	*layout = (struct layout){ 0 };
}

static bool is_own(const struct layout *layout, int i)
{
	return layout->tensors[i].writer == layout->part;
}

void layout_place(struct layout *layout, const void *base)
{
	for (int i = 0; i < layout->table->count; i++) {
		if (!is_own(layout, i))
			continue;
		for (int s = 0; s < SNAPSHOT_STATES; s++)
			layout->slices[i].state[s] = (const float *)(const void *)((const char *)base + layout->at[i][s]);
		layout->tensors[i].data = layout->slices[i].state[SNAPSHOT_MASTER];
	}
}

/* The pieces of one run of bytes, behind those that `pieces` has; only counted where it is NULL. */
static size_t cut(struct copier_piece *pieces, size_t count, const float *from, void *base, size_t at, size_t bytes)
{
	for (size_t done = 0; done < bytes; done += COPIER_PIECE, count++)
		if (pieces)
			pieces[count] = (struct copier_piece){ (const char *)from + done, (char *)base + at + done,
				bytes - done < COPIER_PIECE ? bytes - done : COPIER_PIECE };
	return count;
}

static size_t cut_all(const struct layout *layout, const struct state *state, void *base, struct copier_piece *pieces)
{
	const float *const arenas[SNAPSHOT_STATES] = { [SNAPSHOT_MASTER] = state->weights, [SNAPSHOT_M] = state->m,
		[SNAPSHOT_V] = state->v };
	size_t count = 0;
	for (int s = 0; s < SNAPSHOT_STATES; s++)
		for (int i = 0; i < layout->table->count; i++) {
			const struct tensor *row = &layout->table->rows[i];
			if (is_own(layout, i))
				count = cut(pieces, count, arenas[s] + row->offset, base, layout->at[i][s], row->count * sizeof(float));
		}
	return count;
}

struct copier_piece *layout_pieces(const struct layout *layout, const struct state *state, void *base, size_t *count)
{
	*count = cut_all(layout, state, base, NULL);
	struct copier_piece *pieces = calloc(*count + 1, sizeof *pieces);
	if (pieces)
		cut_all(layout, state, base, pieces);
	return pieces;
}
