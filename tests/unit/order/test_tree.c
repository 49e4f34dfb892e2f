/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces and additions of every split of up to 128 slots against the recursive definition of
 * the tree. Values are 64-bit mixes that tell order and grouping apart, so two trees are equal only
 * if they add the same things in the same way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/order/tree_play.h"

#define SLOTS 128

static uint64_t leaf(int slot)
{
	return 0x9e3779b97f4a7c15u * (uint64_t)(slot + 1);
}

static uint64_t plus(uint64_t left, uint64_t right)
{
	uint64_t v = left * 0xff51afd7ed558ccdu + (right ^ (right >> 29)) * 0xc4ceb9fe1a85ec53u;
	return v ^ (v >> 32);
}

/* The definition, word for word. */
static uint64_t value(int level, int index, int slots)
{
	if (level == 0)
		return leaf(index);
	uint64_t left = value(level - 1, 2 * index, slots);
	if ((2 * index + 1) << (level - 1) >= slots)
		return left;
	return plus(left, value(level - 1, 2 * index + 1, slots));
}

static int root_level(int slots)
{
	int level = 0;
	while (1 << level < slots)
		level++;
	return level;
}

static void add(void *arg, int left, int right)
{
	uint64_t *values = arg;
	values[left] = plus(values[left], values[right]);
}

static int end_of(struct tree_node node, int slots)
{
	int end = (node.index + 1) << node.level;
	return end < slots ? end : slots;
}

static void test_slots_are_contiguous(void **state)
{
	for (int slots = 1; slots <= SLOTS; slots++)
		for (int world = 1; world <= slots; world++) {
			int next = 0, longest = 0, shortest = slots;

			for (int rank = 0; rank < world; rank++) {
				int count;
				assert_int_equal(tree_rank_slots(slots, world, rank, &count), next);
				next += count;
				longest = count > longest ? count : longest;
				shortest = count < shortest ? count : shortest;
			}
			assert_int_equal(next, slots);
			assert_true(longest - shortest <= 1);
		}
}

/* Pieces tile the rank's slots, and none could be larger. */
static void test_pieces_are_maximal(void **state)
{
	for (int slots = 1; slots <= SLOTS; slots++)
		for (int world = 1; world <= slots; world++)
			for (int rank = 0; rank < world; rank++) {
				struct tree_node pieces[TREE_PIECES_MAX];
				int own, at, first = at = tree_rank_slots(slots, world, rank, &own);
				int count = tree_pieces(slots, world, rank, pieces);

				for (int i = 0; i < count; i++) {
					struct tree_node parent = { pieces[i].level + 1, pieces[i].index / 2 };

					assert_int_equal(pieces[i].index << pieces[i].level, at);
					at = end_of(pieces[i], slots);
					if (pieces[i].level < root_level(slots))
						assert_false(parent.index << parent.level >= first
							&& end_of(parent, slots) <= first + own);
				}
				assert_int_equal(at, first + own);
			}
}

/* Counting up a rank's slots leaves its pieces with their values, and combining all pieces gives
 * the root. */
static void test_combine_is_the_tree(void **state)
{
	for (int slots = 1; slots <= SLOTS; slots++) {
		uint64_t root = value(root_level(slots), 0, slots);

		for (int world = 1; world <= slots; world++) {
			uint64_t all[SLOTS];
			int total = 0;

			for (int rank = 0; rank < world; rank++) {
				struct tree_node pieces[TREE_PIECES_MAX];
				struct tree_counter counter = { .slots = slots };
				uint64_t sums[SLOTS];
				int own, first = tree_rank_slots(slots, world, rank, &own);

				for (int slot = first; slot < first + own; slot++) {
					sums[slot] = leaf(slot);
					tree_counter_push(&counter, (struct tree_node) { 0, slot }, slot, add, sums);
				}
				int count = tree_pieces(slots, world, rank, pieces);
				assert_int_equal(counter.count, count);
				for (int i = 0; i < count; i++) {
					assert_true(
						sums[counter.tags[i]] == value(pieces[i].level, pieces[i].index, slots));
					all[total++] = sums[counter.tags[i]];
				}
			}
			assert_int_equal(tree_additions(slots, world, NULL, 0), total);
			assert_int_equal(tree_play(slots, world, add, all), 1);
			assert_true(all[0] == root);
		}
	}
}

/* A power of two of slots a rank, out of a power of two: one piece each, the bytes of a ring. */
static void test_one_piece_where_it_divides(void **state)
{
	for (int slots = 1; slots <= SLOTS; slots *= 2)
		for (int world = 1; world <= slots; world *= 2)
			for (int rank = 0; rank < world; rank++) {
				struct tree_node pieces[TREE_PIECES_MAX];
				assert_int_equal(tree_pieces(slots, world, rank, pieces), 1);
			}
}

static void count_add(void *arg, int left, int right)
{
	++*(int *)arg;
}

static void test_largest_fits(void **state)
{
	int worlds[] = { 1, 2, 3, 7, 640, 1000, 4095, 16383, 16384 };
	for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
		int additions = 0, pieces_count = 0;

		for (int rank = 0; rank < worlds[i]; rank++) {
			struct tree_node pieces[TREE_PIECES_MAX];
			int count = tree_pieces(TREE_SLOTS_MAX, worlds[i], rank, pieces);
			assert_in_range(count, 1, TREE_PIECES_MAX);
			pieces_count += count;
		}
		assert_int_equal(tree_play(TREE_SLOTS_MAX, worlds[i], count_add, &additions), 1);
		assert_int_equal(additions, pieces_count - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slots_are_contiguous),
		cmocka_unit_test(test_pieces_are_maximal),
		cmocka_unit_test(test_combine_is_the_tree),
		cmocka_unit_test(test_one_piece_where_it_divides),
		cmocka_unit_test(test_largest_fits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
