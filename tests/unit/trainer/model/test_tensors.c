/* SPDX-License-Identifier: Apache-2.0 */
/* tensors: offsets are aligned and disjoint, padding shifts nothing, and initial weights are what
 * they claim to be. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "trainer/model/tensors.h"

static struct tensor matrix(const char *name, int64_t rows, int64_t padded_rows, int64_t columns,
	int layer)
{
	struct tensor row = { .dims = 2,
		.shape = { rows, columns },
		.padded = { padded_rows, columns },
		.decay = true,
		.layer = layer,
		.init = TENSOR_NORMAL,
		.init_std = 0.02f };
	snprintf(row.name, sizeof row.name, "%s", name);
	return row;
}

static void add(struct tensor_table *table, struct tensor row)
{
	struct err err;
	assert_int_equal(tensor_table_add(table, &row, &err), 0);
}

static struct tensor_table example(int64_t padded_rows)
{
	struct tensor_table table = { 0 };
	add(&table, (struct tensor) { .name = "norm", .dims = 1, .shape = { 7 }, .init = TENSOR_ONE });
	add(&table, matrix("a", 101, padded_rows, 37, 1));
	add(&table, (struct tensor) { .name = "bias", .dims = 1, .shape = { 300 }, .layer = 2 });
	add(&table, matrix("b", 513, 513, 3, 2));
	return table;
}

static void offsets_are_aligned_and_disjoint(void **state)
{
	struct tensor_table table = example(128);
	size_t end = 0, parameters = 0;
	for (int i = 0; i < table.count; i++) {
		const struct tensor *row = &table.rows[i];
		assert_int_equal(row->offset % TENSOR_ALIGN, 0);
		assert_true(row->offset >= end);
		assert_int_equal(row->count, row->shape[0] * row->shape[1]);
		end = row->offset + (size_t)(row->padded[0] * row->padded[1]);
		parameters += row->count;
	}
	assert_true(table.elements >= end && table.elements % TENSOR_ALIGN == 0);
	assert_int_equal(table.parameters, parameters);
	assert_ptr_equal(tensor_table_find(&table, "b"), &table.rows[3]);
	assert_null(tensor_table_find(&table, "c"));
	tensor_table_clear(&table);
}

static void wrong_rows_are_refused(void **state)
{
	struct tensor_table table = example(101);
	struct tensor wrong[] = {
		matrix("a", 4, 4, 4, 2), /* name taken */
		matrix("", 4, 4, 4, 2),
		matrix("x", 4, 3, 4, 2), /* padded below its shape */
		matrix("x", 0, 0, 4, 2),
		matrix("x", 4, 4, 4, 1), /* a layer that was finished before */
		matrix("x", INT64_MAX / 2, INT64_MAX / 2, 4, 2),
		{ .name = "x", .dims = 3, .shape = { 4, 4 }, .layer = 2 },
		{ .name = "x", .dims = 2, .shape = { 4, 4 }, .padded = { 4, 5 }, .layer = 2 },
	};
	size_t elements = table.elements;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct err err;
		assert_int_equal(tensor_table_add(&table, &wrong[i], &err), -1);
	}
	assert_int_equal(table.count, 4);
	assert_int_equal(table.elements, elements);
	tensor_table_clear(&table);
}

/* An arena full of NaN, initialised. */
static float *init(const struct tensor_table *table, uint64_t seed)
{
	float *arena = malloc(table->elements * sizeof *arena);
	assert_non_null(arena);
	memset(arena, 0xff, table->elements * sizeof *arena);
	tensor_table_init(table, seed, arena);
	return arena;
}

static void padding_is_zero_and_shifts_nothing(void **state)
{
	struct tensor_table plain = example(101), padded = example(256);
	float *a = init(&plain, 5), *b = init(&padded, 5);
	for (int i = 0; i < plain.count; i++)
		assert_memory_equal(a + plain.rows[i].offset, b + padded.rows[i].offset,
			plain.rows[i].count * sizeof *a);
	for (int i = 0; i < padded.count; i++) {
		size_t end = i + 1 < padded.count ? padded.rows[i + 1].offset : padded.elements;
		for (size_t k = padded.rows[i].offset + padded.rows[i].count; k < end; k++)
			assert_true(b[k] == 0.0f);
	}
	for (int k = 0; k < 7; k++)
		assert_true(a[k] == 1.0f);
	free(a);
	free(b);
	tensor_table_clear(&plain);
	tensor_table_clear(&padded);
}

static void seed_and_place_decide(void **state)
{
	struct tensor_table table = { 0 };
	add(&table, matrix("a", 64, 64, 64, 0));
	add(&table, matrix("b", 64, 64, 64, 0));
	float *one = init(&table, 1), *again = init(&table, 1), *other = init(&table, 1ull << 32);
	assert_memory_equal(one, again, table.elements * sizeof *one);
	int equal_places = 0, equal_seeds = 0;
	for (int k = 0; k < 4096; k++) {
		equal_places += one[k] == one[table.rows[1].offset + (size_t)k];
		equal_seeds += one[k] == other[k];
	}
	assert_true(equal_places < 4 && equal_seeds < 4);
	free(one);
	free(again);
	free(other);
	tensor_table_clear(&table);
}

struct moments {
	double mean, variance, kurtosis, lag, largest;
};

static struct moments measure(const float *x, size_t n)
{
	struct moments s = { 0 };
	double fourth = 0;
	for (size_t i = 0; i < n; i++)
		s.mean += x[i] / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = x[i] - s.mean;
		s.variance += d * d / (double)n;
		fourth += d * d * d * d / (double)n;
		if (i > 0)
			s.lag += d * (x[i - 1] - s.mean) / (double)n;
		s.largest = fmax(s.largest, fabs((double)x[i]));
	}
	s.kurtosis = fourth / (s.variance * s.variance);
	s.lag /= s.variance;
	return s;
}

/* Bounds are six standard errors of a million independent values. */
static void values_have_the_stated_distribution(void **state)
{
	const size_t n = 1 << 20;
	struct tensor_table table = { 0 };
	add(&table, matrix("normal", 1024, 1024, 1024, 0));
	struct tensor uniform = matrix("uniform", 1024, 1024, 1024, 0);
	uniform.init = TENSOR_UNIFORM;
	uniform.init_std = 0.5f;
	add(&table, uniform);
	float *arena = init(&table, 99);
	struct moments normal = measure(arena, n), flat = measure(arena + table.rows[1].offset, n);
	assert_true(fabs(normal.mean) < 6 * 0.02 / 1024);
	assert_true(fabs(sqrt(normal.variance) / 0.02 - 1) < 6 / (1024 * sqrt(2)));
	assert_true(fabs(normal.kurtosis - 3) < 6 * sqrt(24) / 1024);
	assert_true(fabs(normal.lag) < 6.0 / 1024);
	assert_true(normal.largest > 4 * 0.02 && normal.largest < 7 * 0.02);
	assert_true(fabs(flat.mean) < 6 * 0.5 / sqrt(3) / 1024);
	assert_true(fabs(flat.variance * 3 / 0.25 - 1) < 6.0 / 1024);
	assert_true(fabs(flat.kurtosis - 1.8) < 0.02);
	assert_true(flat.largest <= 0.5 && flat.largest > 0.4999);
	free(arena);
	tensor_table_clear(&table);
}

static void threads_change_nothing(void **state)
{
#ifdef _OPENMP
	struct tensor_table table = example(101);
	int threads = omp_get_max_threads();
	omp_set_num_threads(1);
	float *one = init(&table, 3);
	omp_set_num_threads(5);
	float *five = init(&table, 3);
	omp_set_num_threads(threads);
	assert_memory_equal(one, five, table.elements * sizeof *one);
	free(one);
	free(five);
	tensor_table_clear(&table);
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(offsets_are_aligned_and_disjoint),
		cmocka_unit_test(wrong_rows_are_refused),
		cmocka_unit_test(padding_is_zero_and_shifts_nothing),
		cmocka_unit_test(seed_and_place_decide),
		cmocka_unit_test(values_have_the_stated_distribution),
		cmocka_unit_test(threads_change_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
