/* SPDX-License-Identifier: Apache-2.0 */
/* sampler: a bijection whatever the count, and every sample exactly once an epoch whichever rank
 * reads it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "order/sampler.h"

static void permutes_every_small_count(void **state)
{
	unsigned char seen[2000];
	for (uint64_t count = 1; count <= 2000; count++) {
		memset(seen, 0, count);
		for (uint64_t i = 0; i < count; i++) {
			uint64_t to = sampler_permute(7, 3, count, i);
			assert_true(to < count);
			assert_int_equal(seen[to]++, 0);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

/* Of a huge count 20,000 indices are looked at: all in range, no two alike, and spread over the
 * whole range. */
static void permutes_huge_counts(void **state)
{
	const uint64_t counts[] = { 65536, 65537, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1,
		UINT64_C(1) << 40, (UINT64_C(1) << 62) + 1, UINT64_MAX };
	static uint64_t to[20000];
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
		uint64_t stride = counts[c] / 20000;
		size_t low = 0;
		for (uint64_t i = 0; i < 20000; i++) {
			/* Half of the indices are neighbours, half are far apart. */
			to[i] = sampler_permute(1, 0, counts[c], i % 2 ? i * stride : i);
			assert_true(to[i] < counts[c]);
			low += to[i] < counts[c] / 2;
		}
		qsort(to, 20000, sizeof to[0], by_value);
		for (size_t i = 1; i < 20000; i++)
			assert_true(to[i - 1] != to[i]);
		assert_in_range(low, 9500, 10500);
	}
}

/* A uniform permutation of 1000 has one fixed point on average and hardly ever more than seven. */
static void orders_differ_between_epochs_and_seeds(void **state)
{
	static const uint64_t keys[][2] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 0, UINT64_C(1) << 32 },
		{ UINT64_C(1) << 32, 0 }, { 0, UINT64_C(1) << 55 }, { 1, 1 } };
	const size_t n = sizeof keys / sizeof keys[0];
	for (size_t a = 0; a < n; a++) {
		int fixed = 0;
		for (uint64_t i = 0; i < 1000; i++)
			fixed += sampler_permute(keys[a][0], keys[a][1], 1000, i) == i;
		assert_in_range(fixed, 0, 8);
		for (size_t b = 0; b < a; b++) {
			int same = 0;
			for (uint64_t i = 0; i < 1000; i++)
				same += sampler_permute(keys[a][0], keys[a][1], 1000, i)
					== sampler_permute(keys[b][0], keys[b][1], 1000, i);
			assert_in_range(same, 0, 8);
		}
	}
}

/* Every sample comes to every place about equally often, also where the network has only two bits a
 * side. */
static void small_permutations_are_even_handed(void **state)
{
	static unsigned int hits[5][5];
	for (uint64_t epoch = 0; epoch < 20000; epoch++)
		for (uint64_t i = 0; i < 5; i++)
			hits[i][sampler_permute(42, epoch, 5, i)]++;
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 5; j++)
			assert_in_range(hits[i][j], 3700, 4300);
}

/* The order belongs to the saved configuration: these values may never change. */
static void order_is_the_recorded_one(void **state)
{
	static const uint64_t expected[10] = { 4, 9, 8, 2, 6, 0, 7, 5, 1, 3 };
	for (uint64_t i = 0; i < 10; i++)
		assert_int_equal(sampler_permute(1234, 5, 10, i), expected[i]);
	assert_int_equal(sampler_permute(1234, 5, UINT64_C(1) << 40, 987654321),
		UINT64_C(282363230117));
}

/* What the ranks of a world read in step `step`: the slots are dealt out as in a run, each slot is
 * `per_slot` places. */
static void read_step(const struct sampler *sampler, uint64_t step, int slots, int world,
	unsigned int *times)
{
	uint64_t per_slot = sampler->global_batch / (uint64_t)slots;
	for (int rank = 0; rank < world; rank++) {
		int first = rank * (slots / world) + (rank < slots % world ? rank : slots % world);
		int count = slots / world + (rank < slots % world);
		for (uint64_t place = (uint64_t)first * per_slot;
			 place < (uint64_t)(first + count) * per_slot; place++) {
			uint64_t sample = sampler_at(sampler, step, place);
			if (sample == SAMPLER_NONE)
				continue;
			assert_true(sample < sampler->count);
			times[sample]++;
		}
	}
}

/* One epoch, read by `before` ranks up to step `stop` and by `after` ranks from there on. */
static void epoch_is_whole(const struct sampler *sampler, uint64_t epoch, int slots, int before,
	int after, uint64_t stop)
{
	unsigned int times[700] = { 0 };
	uint64_t steps = sampler_epoch_steps(sampler), seen = 0;
	for (uint64_t i = 0; i < steps; i++)
		read_step(sampler, epoch * steps + i, slots, i < stop ? before : after, times);
	for (uint64_t sample = 0; sample < sampler->count; sample++) {
		assert_true(times[sample] <= 1);
		seen += times[sample];
	}
	uint64_t whole = sampler->count / sampler->global_batch * sampler->global_batch;
	assert_int_equal(seen, sampler->complete ? sampler->count : whole);
}

static void every_sample_once_an_epoch(void **state)
{
	static const int slot_counts[] = { 8, 9, 12, 16 };
	static const uint64_t counts[] = { 1, 7, 48, 97, 144, 500, 577 };
	for (size_t s = 0; s < 4; s++)
		for (size_t c = 0; c < 7; c++)
			for (int variant = 0; variant < 4; variant++) {
				struct sampler sampler = { .seed = 11,
					.count = counts[c],
					.global_batch = (uint64_t)slot_counts[s] * 3,
					.complete = variant & 1,
					.shuffle = variant & 2 };
				uint64_t steps = sampler_epoch_steps(&sampler);
				for (int world = 1; world <= 8; world++)
					for (uint64_t epoch = 0; epoch < 2; epoch++) {
						epoch_is_whole(&sampler, epoch, slot_counts[s], world, world, 0);
						/* A resume in mid-epoch, with another world. */
						epoch_is_whole(&sampler, epoch, slot_counts[s], world, 9 - world,
							steps / 2);
					}
			}
}

static void last_batch_is_dropped_or_completed(void **state)
{
	struct sampler sampler = { .seed = 1, .count = 10, .global_batch = 4 };
	assert_int_equal(sampler_epoch_steps(&sampler), 2);
	assert_int_equal(sampler_at(&sampler, 1, 3), 7);
	assert_int_equal(sampler_at(&sampler, 2, 0), 0);
	sampler.complete = true;
	assert_int_equal(sampler_epoch_steps(&sampler), 3);
	assert_int_equal(sampler_at(&sampler, 2, 1), 9);
	assert_true(sampler_at(&sampler, 2, 2) == SAMPLER_NONE);
	assert_int_equal(sampler_at(&sampler, 3, 0), 0);
	sampler.count = 3;
	assert_int_equal(sampler_epoch_steps(&sampler), 1);
	assert_true(sampler_at(&sampler, 0, 3) == SAMPLER_NONE);
	sampler.complete = false;
	assert_int_equal(sampler_epoch_steps(&sampler), 0);
	assert_true(sampler_at(&sampler, 0, 0) == SAMPLER_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(permutes_every_small_count),
		cmocka_unit_test(permutes_huge_counts),
		cmocka_unit_test(orders_differ_between_epochs_and_seeds),
		cmocka_unit_test(small_permutations_are_even_handed),
		cmocka_unit_test(order_is_the_recorded_one),
		cmocka_unit_test(every_sample_once_an_epoch),
		cmocka_unit_test(last_batch_is_dropped_or_completed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
