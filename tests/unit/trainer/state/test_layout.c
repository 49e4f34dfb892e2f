/* SPDX-License-Identifier: Apache-2.0 */
/* layout: whatever the parts, every tensor has one writer, whose run of the arenas holds it and
 * nothing of the others', and is read where the arenas have it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/unit/trainer/state/odd_table.h"
#include "trainer/state/layout.h"

/* A buffer whose elements are numbered. */
static float *make_buffer(const struct tensor_table *table)
{
	size_t count = SNAPSHOT_STATES * table->elements;
	float *buffer = malloc(count * sizeof *buffer);
	for (size_t i = 0; i < count; i++)
		buffer[i] = (float)i;
	return buffer;
}

static void check_tensor(const struct layout *layout, int i, const float *buffer)
{
	const struct tensor *row = &layout->table->rows[i];
	const struct snapshot_slice *slice = &layout->slices[i];
	bool own = layout->tensors[i].writer == layout->part;
	assert_int_equal(slice->writer, layout->tensors[i].writer);
	assert_int_equal(slice->count, row->count);
	assert_int_equal(row->offset >= layout->first && row->offset + row->count <= layout->end, own);
	assert_true(own || row->offset + row->count <= layout->first || row->offset >= layout->end);
	assert_ptr_equal(layout->tensors[i].data, slice->state[SNAPSHOT_MASTER]);
	for (size_t s = 0; s < SNAPSHOT_STATES; s++) {
		if (own)
			assert_true(slice->state[s][0] == buffer[s * layout->table->elements + row->offset]);
		else
			assert_null(slice->state[s]);
	}
}

static void check(const struct tensor_table *table, int writers, const float *buffer)
{
	size_t own = 0, tensors = 0;
	for (int part = 0; part < writers; part++) {
		struct layout layout;
		struct err err;
		assert_int_equal(layout_make(&layout, table, part, writers, NULL, 0, &err), 0);
		assert_int_equal(layout.parts, writers < table->count ? writers : table->count);
		assert_int_equal(layout.part, part < layout.parts ? part : -1);
		assert_int_equal(layout_bytes(&layout), SNAPSHOT_STATES * table->elements * sizeof(float));
		assert_int_equal(layout_own_bytes(&layout) > 0, part < layout.parts);
		own += layout_own_bytes(&layout);
		layout_place(&layout, buffer);
		for (int i = 0; i < table->count; i++) {
			check_tensor(&layout, i, buffer);
			tensors += layout.tensors[i].writer == layout.part;
		}
		layout_clear(&layout);
	}
	assert_int_equal(own, SNAPSHOT_STATES * table->elements * sizeof(float));
	assert_int_equal(tensors, table->count);
}

static void every_tensor_has_one_writer(void **unused)
{
	struct tensor_table table = { 0 };
	odd_table_make(&table);
	float *buffer = make_buffer(&table);
	for (int writers = 1; writers <= table.count + 2; writers++)
		check(&table, writers, buffer);
	free(buffer);
	tensor_table_clear(&table);
}

/* What a model counts is saved with its weights and has no optimizer's state; a counter is one
 * int64. */
static void statistics_have_no_slices(void **state)
{
	struct tensor_table table = { 0 };
	struct tensor rows[] = {
		{ .name = "1.weight", .dims = 1, .shape = { 5 } },
		{ .name = "1.running_mean", .dims = 1, .shape = { 5 }, .role = TENSOR_STATISTIC },
		{ .name = "1.num_batches_tracked", .dims = 1, .shape = { 2 }, .role = TENSOR_COUNTER },
		{ .name = "0.weight", .dims = 2, .shape = { 3, 5 } },
	};
	for (int i = 0; i < 4; i++)
		assert_int_equal(tensor_table_add(&table, &rows[i], NULL), 0);
	assert_int_equal(table.parameters, 20);
	float *buffer = make_buffer(&table);
	for (int part = 0; part < 3; part++) {
		struct layout layout;
		assert_int_equal(layout_make(&layout, &table, part, 3, NULL, 0, NULL), 0);
		layout_place(&layout, buffer);
		assert_int_equal(layout.slice_count, 2);
		assert_string_equal(layout.slices[0].tensor, "1.weight");
		assert_string_equal(layout.slices[1].tensor, "0.weight");
		assert_int_equal(layout.tensors[1].dtype, SAFETENSORS_F32);
		assert_int_equal(layout.tensors[1].dims, 1);
		assert_int_equal(layout.tensors[2].dtype, SAFETENSORS_I64);
		assert_int_equal(layout.tensors[2].dims, 0);
		for (int i = 0; i < 4; i++)
			assert_ptr_equal(layout.tensors[i].data,
				layout.tensors[i].writer == layout.part ? buffer + table.rows[i].offset : NULL);
		for (int i = 0; i < 2; i++)
			for (size_t s = 0; s < SNAPSHOT_STATES; s++)
				assert_ptr_equal(layout.slices[i].state[s],
					layout.slices[i].writer == layout.part
						? buffer + s * table.elements + table.rows[3 * i].offset
						: NULL);
		layout_clear(&layout);
	}
	free(buffer);
	tensor_table_clear(&table);
}

/* Shards: over all parts the slices cover each parameter once and lie where they should; what is
 * kept is what is saved. */
static void shards_become_slices(void **state)
{
	struct tensor_table table = { 0 };
	odd_table_make(&table);
	float *buffer = make_buffer(&table);
	size_t big = table.rows[3].offset, slices = 0, elements = 0;
	const struct zero_shard shards[] = { { 0, 0, big + 65536 }, { 1, big + 65536, big + 131072 },
		{ 1, table.rows[4].offset, table.elements }, { 2, big + 131072, table.rows[4].offset } };
	for (int part = 0; part < 4; part++) {
		struct layout layout;
		struct err err;
		size_t own = 0;
		assert_int_equal(layout_make(&layout, &table, part, 4, shards, 4, &err), 0);
		layout_place(&layout, buffer);
		for (size_t i = 0; i < layout.slice_count; i++) {
			const struct snapshot_slice *slice = &layout.slices[i];
			const struct tensor *row = tensor_table_find(&table, slice->tensor);
			assert_true(i == 0 || slice->writer >= layout.slices[i - 1].writer);
			assert_true(slice->first + slice->count <= row->count);
			for (size_t s = 0; s < SNAPSHOT_STATES; s++)
				assert_ptr_equal(slice->state[s],
					slice->writer == part ? buffer + s * table.elements + row->offset + slice->first
										  : NULL);
			own += slice->writer == part ? slice->count : 0;
		}
		slices += own;
		for (size_t i = 0; i < layout.kept_count[SNAPSHOT_M]; i++)
			elements += layout.kept[SNAPSHOT_M][i].end - layout.kept[SNAPSHOT_M][i].first;
		for (int i = 0; i < table.count; i++)
			assert_int_equal(layout.tensors[i].data != NULL, layout.tensors[i].writer == part);
		layout_clear(&layout);
	}
	assert_int_equal(slices, table.parameters);
	assert_int_equal(elements, table.elements);
	free(buffer);
	tensor_table_clear(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statistics_have_no_slices),
		cmocka_unit_test(every_tensor_has_one_writer),
		cmocka_unit_test(shards_become_slices),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
