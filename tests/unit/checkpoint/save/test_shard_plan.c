/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of the shards over all small cases, held against its definition by looking at every
 * other plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "checkpoint/save/shard_plan.h"

#define ITEMS 6
#define SIZES 5 /* an item has 0 to 4 bytes */

/* The largest run of the plan in which a new writer begins at item i + 1 where bit i of `cuts` is
 * set. */
static uint64_t largest_run(const uint64_t *bytes, size_t count, unsigned cuts)
{
	uint64_t largest = 0, run = 0;
	for (size_t i = 0; i < count; i++) {
		run += bytes[i];
		largest = run > largest ? run : largest;
		if (cuts >> i & 1)
			run = 0;
	}
	return largest;
}

static uint64_t least_possible(const uint64_t *bytes, size_t count, int writers)
{
	uint64_t least = UINT64_MAX;
	for (unsigned cuts = 0; cuts < 1u << (count - 1); cuts++)
		if (__builtin_popcount(cuts) < writers) {
			uint64_t largest = largest_run(bytes, count, cuts);
			least = largest < least ? largest : least;
		}
	return least;
}

static void check_assign(const uint64_t *bytes, size_t count, int writers)
{
	int writer[ITEMS];
	unsigned cuts = 0;
	shard_plan_assign(bytes, count, writers, writer);
	assert_int_equal(writer[0], 0);
	for (size_t i = 1; i < count; i++) {
		assert_true(writer[i] == writer[i - 1] || writer[i] == writer[i - 1] + 1);
		cuts |= (unsigned)(writer[i] != writer[i - 1]) << (i - 1);
	}
	int used = writer[count - 1] + 1;
	assert_true(used <= writers);
	assert_int_equal(used == writers, count >= (size_t)writers);
	assert_int_equal(largest_run(bytes, count, cuts), least_possible(bytes, count, writers));
}

/* Which items may stand in one group: of one writer, and within the limit unless it is a single
 * one. */
static bool may_share(const uint64_t *bytes, const int *writer, size_t first, size_t count,
	uint64_t limit)
{
	uint64_t sum = 0;
	for (size_t i = first; i < first + count; i++) {
		sum += bytes[i];
		if (writer[i] != writer[first])
			return false;
	}
	return count == 1 || limit == 0 || sum <= limit;
}

static void check_group(const uint64_t *bytes, const int *writer, size_t count, uint64_t limit)
{
	struct shard_group groups[ITEMS];
	size_t next = 0, made = shard_plan_group(bytes, writer, count, limit, groups);
	for (size_t g = 0; g < made; g++) {
		assert_int_equal(groups[g].first, next);
		assert_int_equal(groups[g].writer, writer[next]);
		assert_true(groups[g].count > 0 && may_share(bytes, writer, next, groups[g].count, limit));
		next += groups[g].count;
		/* As large as it can be: the next item would not fit. */
		if (next < count)
			assert_false(may_share(bytes, writer, groups[g].first, groups[g].count + 1, limit));
	}
	assert_int_equal(next, count);
}

/* Fills bytes[0 … count) with the digits of `number`. */
static void digits(unsigned number, uint64_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++, number /= SIZES)
		bytes[i] = number % SIZES;
}

static unsigned lists_of(size_t count)
{
	unsigned lists = 1;
	while (count-- > 0)
		lists *= SIZES;
	return lists;
}

static void the_largest_run_is_as_small_as_can_be(void **state)
{
	uint64_t bytes[ITEMS];
	for (size_t count = 1; count <= ITEMS; count++)
		for (unsigned list = 0; list < lists_of(count); list++) {
			digits(list, bytes, count);
			for (int writers = 1; writers <= ITEMS + 1; writers++)
				check_assign(bytes, count, writers);
		}
}

static void groups_are_full_and_never_mixed(void **state)
{
	uint64_t bytes[ITEMS];
	int writer[ITEMS];
	for (size_t count = 1; count <= ITEMS; count++)
		for (unsigned list = 0; list < lists_of(count); list++) {
			digits(list, bytes, count);
			for (int writers = 1; writers <= 3; writers++) {
				shard_plan_assign(bytes, count, writers, writer);
				for (uint64_t limit = 0; limit <= 2 * SIZES; limit++)
					check_group(bytes, writer, count, limit);
			}
		}
}

static void nothing_and_very_much_are_planned_too(void **state)
{
	const uint64_t huge[] = { UINT64_MAX / 2, UINT64_MAX / 2, 5 };
	struct shard_group groups[3];
	int writer[3] = { -1, -1, -1 };
	shard_plan_assign(NULL, 0, 4, NULL);
	assert_int_equal(shard_plan_group(NULL, NULL, 0, 10, groups), 0);
	shard_plan_assign(huge, 3, 2, writer);
	assert_true(writer[0] == 0 && writer[1] == 1 && writer[2] == 1);
	assert_int_equal(shard_plan_group(huge, writer, 3, 1, groups), 3);
	assert_int_equal(shard_plan_group(huge, writer, 3, UINT64_MAX, groups), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_largest_run_is_as_small_as_can_be),
		cmocka_unit_test(groups_are_full_and_never_mixed),
		cmocka_unit_test(nothing_and_very_much_are_planned_too),
	};
	return cmocka_run_group_tests_name("shard_plan", tests, NULL, NULL);
}
