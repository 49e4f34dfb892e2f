/* SPDX-License-Identifier: Apache-2.0 */
/* The shim that runs kernels on the host tells of what CUDA leaves undefined. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/block.h"
#include "tests/shim/device.h"
#include "tests/shim/grid.h"
#include "tests/shim/samples.h"

#define MOST 1024

/* A loop over the orders of launches, the first of which is the one again after it. */
#define IN_EACH_ORDER \
	for (int order = 0; device_order(order % device_orders()), order < device_orders(); order++)

/* Fails unless the launch fails with GRID_FAILURE and `text` in its message. */
#define FAILS(launch, text) \
	do { \
		assert_int_equal(launch, GRID_FAILURE); \
		if (!strstr(block_fault_text(), text)) \
			fail_msg("'%s' is not in '%s'", text, block_fault_text()); \
	} while (0)

static float input[96];

static int fill(void **state)
{
	uint32_t bits = 7;
	for (size_t i = 0; i < sizeof input / sizeof *input; i++) {
		bits = bits * 1664525 + 1013904223;
		input[i] = (float)(bits >> 8) / 8388608.0f - 1.0f;
	}
	return 0;
}

/* Of a kernel that lacks a barrier: whether it is right in an order. */
static bool neighbours_right(int (*kernel)(float *, const float *, unsigned int, bool),
	bool barrier, int order, unsigned int edge)
{
	float *out = device_make(96 * sizeof *out), *in = device_copy(input, 96 * sizeof *in);
	bool right = true;
	device_order(order);
	assert_int_equal(kernel(out, in, 96, barrier), 0);
	device_order(0);
	for (unsigned int i = 0; i < 96; i++)
		right = right && out[i] == input[i % edge > 0 ? i - 1 : i];
	device_free(out), device_free(in);
	return right;
}

static void a_missing_barrier_is_seen_in_other_orders(void **state)
{
	if (device_watched())
		skip();
	for (int order = 0; order < device_orders(); order++) {
		assert_true(neighbours_right(sample_neighbour, true, order, 96));
		assert_int_equal(neighbours_right(sample_neighbour, false, order, 96), order == 0);
		assert_true(neighbours_right(sample_neighbour_warp, true, order, 32));
	}
}

static void an_order_that_counts_is_seen(void **state)
{
	unsigned int *counter = device_make(sizeof *counter), *out = device_make(MOST * sizeof *out),
				 first[MOST];
	int different = 0;
	IN_EACH_ORDER
	{
		*counter = 0;
		assert_int_equal(sample_arrival(out, counter, MOST), 0);
		if (order == 0)
			device_read(first, out, sizeof first);
		else
			different += memcmp(first, out, sizeof first) != 0;
	}
	assert_int_equal(different, device_orders() - 1);
	device_free(counter), device_free(out);
}

static void blocks_have_no_order(void **state)
{
	if (device_watched())
		skip();
	float *out = device_make(2 * 64 * sizeof *out);
	assert_int_equal(sample_blocks_share(out, 64), 0);
	assert_true(out[127] == 1);
	device_poison(out, 2 * 64 * sizeof *out);
	device_order(1);
	assert_int_equal(sample_blocks_share(out, 64), 0);
	device_order(0);
	assert_true(isnan(out[127]));
	device_free(out);
}

static void a_thread_that_leaves_before_a_barrier(void **state)
{
	IN_EACH_ORDER for (unsigned int leaver = 0; leaver < 64; leaver += 21)
	{
		assert_int_equal(sample_early_exit(64, leaver), GRID_FAILURE);
		assert_true(strstr(block_fault_text(), "threads of its block have left the kernel")
			|| strstr(block_fault_text(), "leaves the kernel, but"));
	}
	FAILS(sample_early_exit(64, 0),
		"thread (1, 0, 0): comes to __syncthreads(), but 1 threads of its block have left the "
		"kernel");
	FAILS(sample_early_exit(64, 63),
		"thread (63, 0, 0): leaves the kernel, but 63 threads of its block wait at "
		"__syncthreads()");
	FAILS(sample_early_exit_warp(0), "names lane 0, but that has left the kernel");
	FAILS(sample_early_exit_warp(31),
		"leaves the kernel, but lane 0 of its warp waits for it at __shfl_sync()");
}

static void threads_that_wait_for_each_other(void **state)
{
	IN_EACH_ORDER
	FAILS(sample_deadlock(96), "deadlock: 96 of 96 threads wait for each other");
	FAILS(sample_deadlock(96), "thread 0 at __syncwarp(), thread 1 at __syncthreads()");
	FAILS(sample_two_barriers(64),
		"comes to __syncthreads_or(), but 1 threads of its block wait at __syncthreads()");
}

static void masks_that_differ(void **state)
{
	uint32_t out[64 * 4];
	assert_int_equal(sample_masks(32, 0x1, 0xfffffffe), 0);
	FAILS(sample_masks(32, 0xffffffff, 0xfffffffe),
		"lane 0 of its warp waits for it at __shfl_sync() with mask 0xffffffff");
	FAILS(sample_masks(32, 0xffffffff, 0x7fffffff),
		"lane 0 waits for it at __shfl_sync() with mask 0xffffffff");
	FAILS(sample_masks(32, 0xfffffffe, 0xffffffff), "does not name its own lane 0");
	FAILS(sample_masks(31, 0xffffffff, 0x7fffffff), "names lane 31, but the block ends before it");
	FAILS(sample_shuffles(out, 33, 0, 32), "names lane 1, but the block ends before it");
	FAILS(sample_shuffles(out, 64, 0, 24), "width 24");
}

/* What the tests of kernels do with tensors of more than 2^31 elements finds an element number of
 * 32 bits. */
static void a_narrow_number_is_seen(void **state)
{
	const size_t count = ((size_t)1 << 32) + 256;
	for (int narrow = 0; narrow < 2; narrow++) {
		float *out = device_make_sparse(count * sizeof *out);
		if (!out)
			skip();
		device_only_blocks(count / 256 - 1, 1);
		assert_int_equal(sample_far(out, count, narrow), 0);
		device_only_blocks(0, 0);
		for (size_t i = 0; i < 256; i++) {
			assert_true(out[count - 256 + i] == (narrow ? 0 : 1));
			assert_true(out[i] == (narrow ? 1 : 0));
		}
		device_free_sparse(out, count * sizeof *out);
	}
}

static void shared_memory_begins_as_nan(void **state)
{
	float *out = device_make(96 * sizeof *out);
	IN_EACH_ORDER
	{
		device_poison(out, 96 * sizeof *out);
		assert_int_equal(sample_unwritten(out, 96), 0);
		assert_true(out[0] == 1);
		for (int i = 1; i < 96; i++)
			assert_true(isnan(out[i]));
	}
	device_free(out);
}

static void launches_that_no_gpu_takes(void **state)
{
	uint32_t out;
	const unsigned int one[3] = { 1, 1, 1 }, none[3] = { 1, 0, 1 }, many[3] = { 32, 33, 1 },
					   deep[3] = { 1, 1, 65 }, rows[3] = { 1, 65536, 1 };
	assert_int_equal(sample_numbers(&out, none, one), GRID_CONFIGURATION);
	assert_int_equal(sample_numbers(&out, one, none), GRID_CONFIGURATION);
	assert_int_equal(sample_numbers(&out, one, many), GRID_CONFIGURATION);
	assert_int_equal(sample_numbers(&out, one, deep), GRID_CONFIGURATION);
	assert_int_equal(sample_numbers(&out, rows, one), GRID_CONFIGURATION);
	assert_int_equal(sample_too_much_shared(179 << 10), 0);
	FAILS(sample_too_much_shared((179 << 10) + 1), "of shared memory");
	assert_int_equal(sample_too_much_shared((227 << 10) + 1), GRID_VALUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_barrier_is_seen_in_other_orders),
		cmocka_unit_test(an_order_that_counts_is_seen),
		cmocka_unit_test(blocks_have_no_order),
		cmocka_unit_test(a_thread_that_leaves_before_a_barrier),
		cmocka_unit_test(threads_that_wait_for_each_other),
		cmocka_unit_test(masks_that_differ),
		cmocka_unit_test(a_narrow_number_is_seen),
		cmocka_unit_test(shared_memory_begins_as_nan),
		cmocka_unit_test(launches_that_no_gpu_takes),
	};
	return DEVICE_RUN_TESTS(tests, fill, NULL);
}
