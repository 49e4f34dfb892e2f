/* SPDX-License-Identifier: Apache-2.0 */
/* Which elements of a run of the arenas each block of the update has. */
#include "trainer/cuda/adamw.h"

static size_t add_chunks(const struct tensor *row, size_t begin, size_t end, struct adamw_chunk *chunks, size_t count,
	size_t most)
{
	for (; begin < end; begin += ADAMW_CHUNK, count++)
		if (count < most)
			chunks[count] = (struct adamw_chunk){ .first = begin, .decay = row->decay,
				.count = (uint32_t)(end - begin < ADAMW_CHUNK ? end - begin : ADAMW_CHUNK) };
	return count;
}

size_t adamw_chunks(const struct tensor_table *table, size_t first, size_t end, struct adamw_chunk *chunks, size_t most)
{
	size_t count = 0;
	for (int i = 0; i < table->count; i++) {
		const struct tensor *row = &table->rows[i];
		size_t begin = row->offset > first ? row->offset : first;
		size_t stop = row->offset + row->count < end ? row->offset + row->count : end;
		if (row->role == TENSOR_PARAMETER)
			count = add_chunks(row, begin, stop, chunks, count, most);
	}
	return count;
}
