/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical reduction's additions in one pass on the GPU: the bits of the same additions one by
 * one. */
#include "config.h"

#include "tests/unit/order/tree_play.h"
#include "tests/unit/trainer/cuda/kernels/kernel_fixture.h"
#include "tests/unit/trainer/ops/ops_fixture.h"
#include "trainer/cuda/kernels/tree_reduce.h"

struct combination {
	float *out;
	struct cuda_tree_reduce tree_reduce;
	size_t count;
};

static void run(void *arg)
{
	struct combination *c = arg;
	assert_int_equal(cuda_tree_reduce(c->out, &c->tree_reduce, c->count, NULL), 0);
}

struct pieces {
	float *at[COMBINE_MOST];
	size_t count;
};

static void add_piece(void *arg, int left, int right)
{
	struct pieces *p = arg;
	for (size_t i = 0; i < p->count; i++)
		p->at[left][i] += p->at[right][i];
}

/* Magnitudes far apart, so that another order rounds elsewhere. The sum goes to where piece 0 was.
 */
static void check(int slots, int world, size_t count, int shift)
{
	int additions[COMBINE_MOST];
	const int pieces = tree_additions(slots, world, additions, COMBINE_MOST);
	struct pieces on_host = { .count = count };
	struct combination c = { .tree_reduce.count = pieces, .count = count };
	float *all =
		kernel_floats((size_t)pieces * count, 1, (uint32_t)(slots * 100 + world), CUDA_FP32);
	const float *operands;
	assert_in_range(pieces, 1, COMBINE_MOST);
	for (size_t i = 0; i < (size_t)pieces * count; i++)
		all[i] *= i % 3 ? 1 : 1e4f;
	operands = kernel_tensor(all, (size_t)pieces * count, CUDA_FP32, shift);
	c.out = kernel_output_tensor("out", all, count, CUDA_FP32, shift);
	for (int n = 0; n < pieces; n++) {
		c.tree_reduce.pieces[n].at = n ? operands + (size_t)n * count : c.out;
		c.tree_reduce.pieces[n].additions = additions[n];
		on_host.at[n] = all + (size_t)n * count;
	}
	kernel_run(run, &c);
	tree_play(slots, world, add_piece, &on_host);
	fixture_same_bits("out", kernel_result(c.out), all, count * 4);
	kernel_done();
}

static void sum_has_the_bits_of_additions_one_by_one(void **state)
{
	static const size_t counts[] = { 1, 3, 33, 255, 1024, 1031 };
	for (int world = 1; world <= 16; world++)
		for (int slots = world; slots <= 64; slots += 1 + slots / 3)
			check(slots, world, counts[(slots + world) % 6], world % 2);
	check(TREE_SLOTS_MAX, 3, 33, 0);
	check(TREE_SLOTS_MAX - 1, 7, 33, 0);
	check(64, 64, 257, 0);
	/* on either side of the depth from which another kernel runs */
	check(COMBINE_MOST, COMBINE_MOST, 33, 0);
	check(511, 2, 33, 0);
}

/* The stack that the kernel has is deep enough, whatever the slots. */
static void stack_is_deep_enough(void **state)
{
	int additions[TREE_PIECES_MAX * 64];
	for (int slots = 1; slots <= TREE_SLOTS_MAX; slots += 1 + slots / 9)
		for (int world = 1; world <= slots && world <= 64; world++) {
			const int pieces = tree_additions(slots, world, additions, TREE_PIECES_MAX * 64);
			int depth = 0;
			for (int n = 0; n < pieces; n++) {
				assert_in_range(++depth, 1, COMBINE_DEPTH);
				depth -= additions[n];
			}
			assert_int_equal(depth, 1);
		}
}

static void last_elements_lie_beyond_2_to_the_31(void **state)
{
	const size_t count = ((size_t)1 << 31) + 3;
	float *piece = device_make_sparse(count * 4), *out = device_make_sparse(count * 4), sum[3];
	const float three[3] = { 1, 2, 3 };
	if (!piece || !out)
		skip();
	const struct cuda_tree_reduce tree_reduce = { 2, { { piece, 0 }, { piece, 1 } } };
	device_write(piece + count - 3, three, 12);
	device_only_blocks((count / 4) / 256, 1);
	assert_int_equal(cuda_tree_reduce(out, &tree_reduce, count, NULL), 0);
	device_only_blocks(0, 0);
	device_read(sum, out + count - 3, 12);
	assert_true(sum[0] == 2 && sum[1] == 4 && sum[2] == 6);
	device_free_sparse(piece, count * 4);
	device_free_sparse(out, count * 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sum_has_the_bits_of_additions_one_by_one),
		cmocka_unit_test(stack_is_deep_enough),
		cmocka_unit_test(last_elements_lie_beyond_2_to_the_31),
	};
	return DEVICE_RUN_TESTS(tests, NULL, NULL);
}
