/* SPDX-License-Identifier: Apache-2.0 */
/* layout: whatever the parts and the shards, every element of the state has one place, an optimizer file's data is one run
 * of memory from a page on, and what is copied there is what the arenas hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/ckpt_files.h"
#include "trainer/layout.h"

#define PAGE 4096

static void add(struct tensor_table *table, int64_t rows, int64_t columns, int64_t padded)
{
	struct tensor row = { .dims = 2, .shape = { rows, columns }, .padded = { padded, columns } };
	struct err err;
	snprintf(row.name, sizeof row.name, "tensor.%d", table->count);
	if (tensor_table_add(table, &row, &err) < 0)
		fail_msg("%s", err.text);
}

/* Odd sizes, padding, one tensor larger than any shard of the tests, one of several pieces. */
static void make(struct tensor_table *table, struct state *state)
{
	add(table, 1, 33, 1);
	add(table, 123, 77, 128);
	add(table, 1, 1, 1);
	add(table, 301, 1000, 301);
	add(table, 64, 64, 64);
	add(table, 5, 7, 8);
	*state = (struct state){ .tensors = table, .step = 7 };
	float **arenas[] = { &state->weights, &state->m, &state->v };
	for (int s = 0; s < 3; s++) {
		*arenas[s] = malloc(table->elements * sizeof(float));
		for (size_t i = 0; i < table->elements; i++)
			(*arenas[s])[i] = (float)i + (float)s * 0.25f;
	}
}

static void drop(struct tensor_table *table, struct state *state)
{
	tensor_table_clear(table);
	free(state->weights);
	free(state->m);
	free(state->v);
}

/* The slot holds the logical elements of the part's tensors where the layout says, and no two of them overlap. */
static void check_contents(const struct layout *layout, const struct state *state, const char *slot)
{
	const float *const arenas[] = { state->weights, state->m, state->v };
	char *used = calloc(layout->bytes + 1, 1);
	for (int i = 0; i < layout->table->count; i++) {
		const struct tensor *row = &layout->table->rows[i];
		if (layout->tensors[i].writer != layout->part) {
			assert_null(layout->tensors[i].data);
			assert_null(layout->slices[i].state[SNAPSHOT_M]);
			continue;
		}
		assert_ptr_equal(layout->tensors[i].data, layout->slices[i].state[SNAPSHOT_MASTER]);
		for (int s = 0; s < SNAPSHOT_STATES; s++) {
			const char *at = (const char *)layout->slices[i].state[s];
			assert_in_range(at - slot, 0, layout->bytes - row->count * sizeof(float));
			assert_memory_equal(at, arenas[s] + row->offset, row->count * sizeof(float));
			for (size_t b = 0; b < row->count * sizeof(float); b++)
				assert_false(used[at - slot + (ptrdiff_t)b]++);
		}
	}
	free(used);
}

/* As the writer of the files sees it: behind a header come pieces of which each begins where the one before ends. */
static size_t check_files(const struct layout *layout)
{
	const struct snapshot snapshot = { .world_size = 1, .config_json = "{}", .numerics_json = "{}", .model_json = "{}",
		.tensors = layout->tensors, .tensor_count = (size_t)layout->table->count, .slices = layout->slices,
		.slice_count = (size_t)layout->table->count, .part = layout->part, .parts = layout->parts, .shard_size = 50000 };
	struct ckpt_files files;
	struct err err;
	size_t shards = 0;
	if (ckpt_files_plan(&snapshot, &files, &err) < 0)
		fail_msg("%s", err.text);
	for (size_t f = 0; f < files.count; f++) {
		const struct ckpt_file *file = &files.files[f];
		if (file->role != MANIFEST_MODEL && file->role != MANIFEST_OPTIMIZER)
			continue;
		shards++;
		assert_int_equal((uintptr_t)file->pieces[1].data % PAGE, 0);
		for (size_t p = 2; p < file->count; p++)
			assert_ptr_equal(file->pieces[p].data, (const char *)file->pieces[p - 1].data + file->pieces[p - 1].size);
	}
	ckpt_files_free(&files);
	return shards;
}

static void check(const struct state *state, int writers, uint64_t shard_size, uint64_t *covered)
{
	for (int part = 0; part < writers; part++) {
		struct layout layout;
		struct err err;
		size_t count;
		assert_int_equal(layout_make(&layout, state->tensors, part, writers, shard_size, &err), 0);
		assert_int_equal(layout.parts, writers < state->tensors->count ? writers : state->tensors->count);
		assert_int_equal(layout.part, part < layout.parts ? part : -1);
		assert_int_equal(layout.bytes % PAGE, 0);
		assert_int_equal(layout.bytes > 0, part < layout.parts);
		char *slot = aligned_alloc(PAGE, layout.bytes + PAGE);
		struct copier_piece *pieces = layout_pieces(&layout, state, slot, &count);
		for (size_t i = 0; i < count; i++) {
			assert_in_range(pieces[i].bytes, 1, COPIER_PIECE);
			memcpy(pieces[i].to, pieces[i].from, pieces[i].bytes);
		}
		layout_place(&layout, slot);
		check_contents(&layout, state, slot);
		if (shard_size == 50000 && layout.part >= 0)
			assert_true(check_files(&layout) >= 2);
		for (int i = 0; i < state->tensors->count; i++)
			covered[i] += layout.tensors[i].writer == layout.part;
		free(pieces);
		free(slot);
		layout_clear(&layout);
	}
}

static void every_element_has_one_place(void **unused)
{
	static const uint64_t sizes[] = { 0, 1, 50000, 1000000 };
	struct tensor_table table = { 0 };
	struct state state;
	make(&table, &state);
	for (int writers = 1; writers <= table.count + 2; writers++)
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
			uint64_t covered[6] = { 0 };
			check(&state, writers, sizes[s], covered);
			for (int i = 0; i < table.count; i++)
				assert_int_equal(covered[i], 1);
		}
	drop(&table, &state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_element_has_one_place),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
