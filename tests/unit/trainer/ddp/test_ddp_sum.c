/* SPDX-License-Identifier: Apache-2.0 */
/* The additions of many pieces, as a GPU makes them: in few launches, and to the bits of one
 * addition after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/ddp/ddp_private.h"

#define PIECES 4096
#define ELEMENTS 3

struct tree {
	int count, additions[PIECES];
	float values[PIECES][ELEMENTS];
};

static int launches;

static void add(float *out, const float *a, const float *b)
{
	for (int i = 0; i < ELEMENTS; i++)
		out[i] = a[i] + b[i];
}

/* By a stack of copies. */
static void add_all(float *out, float *const *pieces, const int *additions, int count)
{
	float(*stack)[ELEMENTS] = calloc((size_t)count, sizeof *stack);
	int depth = 0;

	for (int n = 0; n < count; n++) {
		memcpy(stack[depth++], pieces[n], sizeof stack[0]);
		for (int i = 0; i < additions[n]; i++, depth--)
			add(stack[depth - 2], stack[depth - 2], stack[depth - 1]);
	}
	assert_int_equal(depth, 1);
	memcpy(out, stack[0], sizeof stack[0]);
	free(stack);
}

static void tree_reduce(struct ops *ops, float *out, float *const *pieces, const int *additions,
	int count, size_t elements)
{
	assert_int_equal(elements, ELEMENTS);
	assert_in_range(count, 2, OPS_TREE_REDUCE_MAX);
	add_all(out, pieces, additions, count);
	launches++;
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525 + 1013904223;
	return (*state >> 8) % below;
}

/* Values of very different sizes, so that the order of the additions shows. */
static void fill(struct tree *tree, uint32_t *state)
{
	for (int n = 0; n < tree->count; n++)
		for (int i = 0; i < ELEMENTS; i++)
			tree->values[n][i] =
				(float)draw(state, 1000) * (float)(1u << draw(state, 24)) / 1000.0F;
}

/* Returns the number of launches. */
static int check(struct tree *tree)
{
	struct ops ops = { .tree_reduce = tree_reduce };
	struct ddp_group *groups = calloc((size_t)tree->count, sizeof *groups);
	float **pieces = calloc((size_t)tree->count, sizeof *pieces), expected[ELEMENTS], sum[ELEMENTS];

	for (int n = 0; n < tree->count; n++)
		pieces[n] = tree->values[n];
	add_all(expected, pieces, tree->additions, tree->count);
	launches = 0;
	ddp_add_tree(&ops, pieces, tree->additions, groups, tree->count, sum, ELEMENTS);
	assert_memory_equal(sum, expected, sizeof sum);
	free(pieces);
	free(groups);
	return launches;
}

/* `likely` of 100 additions that could follow a piece do: few make right-deep trees, many left-deep
 * ones. */
static void any_tree_has_the_same_bits(void **state)
{
	static const int counts[] = { 2, OPS_TREE_REDUCE_MAX, OPS_TREE_REDUCE_MAX + 1, 700, PIECES };
	struct tree *tree = calloc(1, sizeof *tree);
	uint32_t seed = 1;

	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		for (uint32_t likely = 0; likely <= 100; likely += 10) {
			tree->count = counts[i];
			for (int n = 0, depth = 0; n < tree->count; n++) {
				depth++;
				tree->additions[n] = n + 1 == tree->count ? depth - 1 : 0;
				while (tree->additions[n] < depth - 1 && draw(&seed, 100) < likely)
					tree->additions[n]++;
				depth -= tree->additions[n];
			}
			fill(tree, &seed);
			check(tree);
		}
	free(tree);
}

/* Balanced trees, as equal ranks make them. */
static void equal_ranks_take_few_launches(void **state)
{
	struct tree *tree = calloc(1, sizeof *tree);
	uint32_t seed = 2;

	for (tree->count = 128; tree->count <= PIECES; tree->count *= 2) {
		for (int n = 0; n < tree->count; n++)
			tree->additions[n] = __builtin_ctz((unsigned)n + 1);
		fill(tree, &seed);
		assert_int_equal(check(tree), tree->count == 128 ? 1 : tree->count / 128 + 1);
	}
	free(tree);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_tree_has_the_same_bits),
		cmocka_unit_test(equal_ranks_take_few_launches),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
