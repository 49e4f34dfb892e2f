/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of data parallelism, which is arithmetic only: what buckets and segments hold, and who
 * adds which slots when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/trainer/ddp/ddp_table.h"
#include "trainer/ddp/ddp_plan.h"
#include "trainer/ops/ops.h"

static void check_segments(const struct ddp_bucket *bucket)
{
	for (int world = 1; world <= 9; world++) {
		size_t at = bucket->first, part;
		for (int rank = 0; rank < world; rank++) {
			size_t first = ddp_segment(bucket, world, rank, &part);
			assert_true(part == 0 || first == at);
			at += part;
		}
		assert_int_equal(at, bucket->first + bucket->count);
	}
}

/* Buckets tile the arena, the head's part of a split embedding first, keep their limits and become
 * ready in order; segments tile each bucket. */
static void check_buckets(const struct tensor_table *table, size_t bytes)
{
	int count;
	struct ddp_bucket *buckets = ddp_buckets_make(table, bytes, &count);
	size_t end = tensor_table_gradients(table), next = table->split_count ? table->elements : 0;
	size_t limit = bytes > 1024 ? bytes : 1024;

	for (int i = 0; i < count; i++) {
		assert_int_equal(buckets[i].first, next);
		assert_true(buckets[i].count > 0);
		assert_true(buckets[i].count * sizeof(float)
			<= (i || limit < DDP_FIRST_BUCKET ? limit : DDP_FIRST_BUCKET));
		assert_true(i == 0 || buckets[i].layer >= buckets[i - 1].layer);
		next += buckets[i].count;
		for (int t = 0; t < table->count; t++)
			if (next <= table->elements && table->rows[t].offset < next)
				assert_true(buckets[i].layer >= table->rows[t].layer);
		check_segments(&buckets[i]);
		if (next == end && table->split_count) {
			assert_int_equal(buckets[i].layer, 0);
			next = 0;
			end = 0;
		}
	}
	assert_int_equal(next, table->elements);
	assert_int_equal(buckets[count - 1].layer, LAYERS - 1);
	free(buckets);
}

static bool starts_block(const struct tensor_table *table, size_t at)
{
	bool found = at == table->elements;

	for (int i = 0; i < table->count; i++)
		found |= at >= table->rows[i].offset && at < table->rows[i].offset + table->rows[i].count
			&& (at - table->rows[i].offset) % NORM_BLOCK == 0;
	return found;
}

/* Who has an element of the rows. */
static int owner(const struct ddp_bucket *buckets, int count, int world, size_t at)
{
	for (int i = 0; i < count; i++)
		for (int rank = 0; rank < world; rank++)
			if (at >= buckets[i].cuts[rank] && at < buckets[i].cuts[rank + 1])
				return rank;
	return -1;
}

/* Buckets and segments tile the head's part, and each element's owner is that of the one to which
 * it is added. */
static int check_heads(const struct tensor_table *table, const struct ddp_bucket *buckets,
	int count, int world)
{
	size_t next = table->elements, part;
	int heads = 0;

	for (; !ddp_bucket_is_of_rows(table, &buckets[heads]); heads++) {
		assert_int_equal(buckets[heads].first, next);
		assert_int_equal(buckets[heads].layer, 0);
		for (int rank = 0; rank < world; rank++) {
			assert_int_equal(ddp_segment(&buckets[heads], world, rank, &part), next);
			for (size_t k = 0; k < part; k += 211)
				assert_int_equal(owner(buckets, count, world,
									 next + k - table->elements + table->split_offset),
					rank);
			next += part;
		}
		assert_int_equal(next, buckets[heads].first + buckets[heads].count);
	}
	assert_int_equal(next, tensor_table_gradients(table));
	return heads;
}

/* Elements after a row's own, which belong to its last block. */
static size_t most_padding(const struct tensor_table *table)
{
	size_t most = 0;

	for (int i = 0; i < table->count; i++) {
		size_t next = i + 1 < table->count ? table->rows[i + 1].offset : table->elements;
		size_t padding = next - table->rows[i].offset - table->rows[i].count;
		most = padding > most ? padding : most;
	}
	return most;
}

/* Over all buckets the ranks up to each one have their share of the rows, to a block: so has each
 * node, whatever its ranks are. */
static void check_shares(const struct tensor_table *table, const struct ddp_bucket *buckets,
	int count, int world)
{
	for (int rank = 1; rank < world; rank++) {
		size_t share = table->elements * (size_t)rank / (size_t)world, given = 0;
		for (int i = 0; i < count; i++)
			if (ddp_bucket_is_of_rows(table, &buckets[i]))
				given += buckets[i].cuts[rank] - buckets[i].first;
		assert_in_range(given + NORM_BLOCK + most_padding(table), share,
			share + 2 * (NORM_BLOCK + most_padding(table)));
	}
}

/* Cut by blocks: buckets and segments tile the arena as before, and no norm's block has two owners.
 */
static void check_aligned(const struct tensor_table *table, size_t bytes, int world)
{
	int count;
	struct ddp_bucket *buckets = ddp_buckets_make(table, bytes, &count);
	size_t *cuts = ddp_buckets_align(table, &buckets, &count, world), next = 0, part;
	size_t limit = bytes / sizeof(float) + NORM_BLOCK + most_padding(table) + TENSOR_ALIGN;

	for (int i = check_heads(table, buckets, count, world); i < count; i++) {
		assert_int_equal(buckets[i].first, next);
		assert_true(buckets[i].count > 0 && buckets[i].count <= limit);
		for (int rank = 0; rank < world; rank++) {
			assert_int_equal(ddp_segment(&buckets[i], world, rank, &part), next);
			assert_true(starts_block(table, next));
			next += part;
		}
		assert_int_equal(next, buckets[i].first + buckets[i].count);
		for (int t = 0; t < table->count; t++)
			assert_true(table->rows[t].offset >= next || buckets[i].layer >= table->rows[t].layer);
	}
	assert_int_equal(next, table->elements);
	check_shares(table, buckets, count, world);
	free(cuts);
	free(buckets);
}

static void check_limits(const struct tensor_table *table)
{
	static const size_t limits[] = { 1, 70000, 300000, 1 << 20, 25 << 20 };

	for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
		check_buckets(table, limits[k]);
		for (int world = 1; world <= 9; world++)
			check_aligned(table, limits[k], world);
	}
}

static void test_buckets(void **state)
{
	struct tensor_table table = { 0 };

	make_table(&table);
	check_limits(&table);
	split_last(&table);
	check_limits(&table);
	tensor_table_clear(&table);
}

/* A counter of 2^k slots needs k + 1 arenas, the result is in arena 0, and each slot is added away
 * but the pieces. */
static void test_plan(void **state)
{
	for (int slots = 1; slots <= 64; slots++)
		for (int world = 1; world <= slots; world++)
			for (int rank = 0; rank < world; rank++) {
				struct ddp_plan plan;
				struct err err;

				assert_int_equal(ddp_plan_make(&plan, slots, world, rank, false, &err), 0);
				assert_int_equal(plan.arena_of[0], 0);
				assert_int_equal(plan.piece_arena[0], 0);
				assert_int_equal(plan.pieces, plan.piece_start[rank + 1] - plan.piece_start[rank]);
				assert_int_equal(plan.merge_end[plan.count - 1], plan.count - plan.pieces);
				for (int i = plan.piece_start[rank]; i < plan.piece_start[rank + 1]; i++) {
					bool last = i + 1 == plan.piece_start[rank + 1];
					assert_int_equal(ddp_plan_is_early(&plan, rank, i), !last);
					assert_true(last ? plan.piece_after[i] == plan.count
									 : plan.piece_after[i] < plan.piece_after[i + 1]);
				}
				if (world == 1 && (slots & (slots - 1)) == 0)
					assert_int_equal(1 << (plan.arenas - 1), slots);
				ddp_plan_clear(&plan);
			}
}

/* A sixteenth of the gradients, with those of a split head; whole MB, up to 25, and one for four
 * ranks. */
static void test_bucket_mb(void **state)
{
	static const struct {
		size_t elements, split;
		int world, mb;
	} cases[] = {
		{ 1, 0, 1, 1 },
		{ 600000, 0, 4, 1 },
		{ 600000, 0, 5, 2 },
		{ 8 << 20, 0, 8, 2 },
		{ (8 << 20) - 1, 0, 4, 1 },
		{ 6 << 20, 2 << 20, 1, 2 },
		{ 124439808, 0, 2, 25 },
		{ 100 << 20, 0, 2, 25 },
		{ 96 << 20, 0, 2, 24 },
		{ 600000, 0, 64, 16 },
		{ 600000, 0, 8192, 25 },
		{ 124439808, 0, 100, 25 },
		{ 124439808, 0, 101, 26 },
		{ 124439808, 0, 256, 64 },
		{ 124439808, 0, 512, 118 },
		{ (size_t)1 << 40, 0, 3, 25 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct tensor_table table = { .elements = cases[i].elements,
			.split_count = cases[i].split };

		assert_int_equal(ddp_bucket_mb(&table, cases[i].world), cases[i].mb);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_plan),
		cmocka_unit_test(test_bucket_mb),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
