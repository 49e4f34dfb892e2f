/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of metrics-N.jsonl: whatever a crash or a program has left in the file, the
 * rows are in the order of their steps, and merged into an empty table, or once more into the
 * same, they do not change. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runs/run_table.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static void check_rows(const struct run_table *table)
{
	if (table->width > RUN_TABLE_COLUMNS)
		abort();
	for (size_t row = 1; row < table->count; row++)
		if (table->steps[row] <= table->steps[row - 1])
			abort();
}

static void check_equal(const struct run_table *a, const struct run_table *b)
{
	if (a->count != b->count)
		abort();
	for (size_t row = 0; row < a->count; row++) {
		if (a->steps[row] != b->steps[row])
			abort();
		for (int c = 0; c < a->width; c++) {
			const double one = a->columns[c].values[row];
			const double other = run_table_value(b, a->columns[c].name, row);
			if (isnan(one) != isnan(other) || (!isnan(one) && one != other))
				abort();
		}
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct run_table table, merged = { 0 };
	struct err err;
	if (run_table_parse((const char *)bytes, size, &table, &err) < 0)
		abort();
	check_rows(&table);
	for (int time = 0; time < 2; time++) {
		if (run_table_merge(&merged, &table, &err) < 0)
			abort();
		check_equal(&table, &merged);
	}
	run_table_clear(&table);
	run_table_clear(&merged);
	return 0;
}
