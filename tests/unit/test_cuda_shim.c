/* SPDX-License-Identifier: Apache-2.0 */
/* The shim that runs kernels on the host: it gives what CUDA defines, in every order, and tells of what CUDA leaves
 * undefined. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/block.h"
#include "tests/shim/device.h"
#include "tests/shim/grid.h"
#include "tests/shim/samples.h"

#define MOST 1024

/* A loop over the orders of launches, the first of which is the one again behind it. */
#define IN_EACH_ORDER for (int order = 0; device_order(order % device_orders()), order < device_orders(); order++)

/* Fails unless the launch fails with GRID_FAILURE and `text` in its message. */
#define FAILS(launch, text) \
	do { \
		assert_int_equal(launch, GRID_FAILURE); \
		if (!strstr(block_fault_text(), text)) \
			fail_msg("'%s' is not in '%s'", text, block_fault_text()); \
	} while (0)

static float input[8 * MOST];

static int fill(void **state)
{
	uint32_t bits = 7;
	for (size_t i = 0; i < sizeof input / sizeof *input; i++) {
		bits = bits * 1664525 + 1013904223;
		input[i] = (float)(bits >> 8) / 8388608.0f - 1.0f;
	}
	return 0;
}

struct summing {
	int (*sum)(float *out, const float *in, unsigned int blocks, unsigned int threads);
	float *out, *in;
	unsigned int blocks, threads;
};

static void run_sum(void *arg)
{
	struct summing *s = arg;
	assert_int_equal(s->sum(s->out, s->in, s->blocks, s->threads), 0);
}

static void check_sum(int (*sum)(float *, const float *, unsigned int, unsigned int), unsigned int blocks, unsigned int threads)
{
	float out[8];
	double exact[8] = { 0 };
	for (unsigned int i = 0; i < blocks * threads; i++)
		exact[i / threads] += (double)input[i];
	float *device = device_make(blocks * sizeof(float)), *in = device_copy(input, blocks * threads * sizeof(float));
	struct summing summing = { sum, device, in, blocks, threads };
	device_same_in_each_order("a sum", run_sum, &summing, out, device, blocks * sizeof(float));
	device_near_double("a sum", out, exact, blocks, 1e-5);
	device_free(device), device_free(in);
}

static void barriers_and_shared_memory(void **state)
{
	for (unsigned int threads = 1; threads <= MOST; threads *= 2)
		check_sum(sample_tree_sum, 8, threads);
}

static void shuffles_between_barriers(void **state)
{
	static const unsigned int threads[] = { 32, 64, 96, 256, 992, 1024 };
	for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
		check_sum(sample_warp_sum, 5, threads[i]);
}

static void every_thread_of_a_grid(void **state)
{
	static const unsigned int shapes[][2][3] = { { { 1, 1, 1 }, { 1, 1, 1 } }, { { 3, 1, 1 }, { 33, 1, 1 } },
		{ { 2, 3, 5 }, { 4, 3, 2 } }, { { 1, 7, 2 }, { 1, 1, 64 } }, { { 5, 1, 2 }, { 16, 64, 1 } } };
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		const unsigned int *grid = shapes[s][0], *block = shapes[s][1];
		uint32_t count = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2];
		uint32_t *out = device_make(count * sizeof *out);
		IN_EACH_ORDER {
			device_poison(out, count * sizeof *out);
			assert_int_equal(sample_numbers(out, grid, block), 0);
			for (uint32_t i = 0; i < count; i++)
				assert_int_equal(out[i], i);
		}
		device_free(out);
	}
}

/* PTX ISA, shfl.sync: what lane `lane` gets. */
static uint32_t shuffled(int kind, uint32_t thread, int operand, int width)
{
	int lane = (int)thread % 32, base = (int)thread - lane, segment = lane / width;
	int from[4] = { segment * width + operand % width, lane - operand, lane + operand, lane ^ operand };
	bool inside = kind == 0 || (kind == 1 ? from[1] >= segment * width : from[kind] < (segment + 1) * width);
	return (uint32_t)(base + (inside ? from[kind] : lane));
}

static void all_shuffles(void **state)
{
	uint32_t *out = device_make(64 * 4 * sizeof *out);
	for (int width = 1; width <= 32; width *= 2)
		for (int operand = 0; operand < 32; operand++)
			IN_EACH_ORDER {
				assert_int_equal(sample_shuffles(out, 64, operand, width), 0);
				for (uint32_t i = 0; i < 64 * 4; i++)
					assert_int_equal(out[i], shuffled((int)i % 4, i / 4, operand, width));
			}
	FAILS(sample_shuffles(out, 64, 0, 24), "width 24");
	FAILS(sample_shuffles(out, 33, 0, 32), "names lane 1, but the block ends before it");
	device_free(out);
}

static void votes_of_some_lanes(void **state)
{
	uint32_t *out = device_make(96 * 6 * sizeof *out);
	IN_EACH_ORDER {
		assert_int_equal(sample_votes(out, 96), 0);
		for (uint32_t i = 0; i < 96; i++) {
			uint32_t ballot = 0;
			for (uint32_t lane = i % 2; lane < 32; lane += 2)
				ballot |= (uint32_t)((i / 32 * 32 + lane) % 3 == 0) << lane;
			const uint32_t expected[6] = { ballot, i % 2 && i / 32 % 2 == 0, i % 2, 1, 0, 32 };
			assert_memory_equal(out + 6 * i, expected, sizeof expected);
		}
	}
	device_free(out);
}

static void atomics_of_all_threads(void **state)
{
	unsigned int *counts = device_make(2 * sizeof *counts);
	IN_EACH_ORDER {
		counts[0] = counts[1] = 0;
		assert_int_equal(sample_atomics(counts, 7, 333), 0);
		assert_int_equal(counts[0], 7 * 333);
		assert_int_equal(counts[1], 7 * 333 - 1);
	}
	device_free(counts);
}

/* Of a kernel that lacks a barrier: whether it is right in an order. */
static bool neighbours_right(int (*kernel)(float *, const float *, unsigned int, bool), bool barrier, int order, unsigned int edge)
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
	unsigned int *counter = device_make(sizeof *counter), *out = device_make(MOST * sizeof *out), first[MOST];
	int different = 0;
	IN_EACH_ORDER {
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
	IN_EACH_ORDER for (unsigned int leaver = 0; leaver < 64; leaver += 21) {
		assert_int_equal(sample_early_exit(64, leaver), GRID_FAILURE);
		assert_true(strstr(block_fault_text(), "threads of its block have left the kernel") ||
			strstr(block_fault_text(), "leaves the kernel, but"));
	}
	FAILS(sample_early_exit(64, 0), "thread (1, 0, 0): comes to __syncthreads(), but 1 threads of its block have left the kernel");
	FAILS(sample_early_exit(64, 63), "thread (63, 0, 0): leaves the kernel, but 63 threads of its block wait at __syncthreads()");
	FAILS(sample_early_exit_warp(0), "names lane 0, but that has left the kernel");
	FAILS(sample_early_exit_warp(31), "leaves the kernel, but lane 0 of its warp waits for it at __shfl_sync()");
}

static void threads_that_wait_for_each_other(void **state)
{
	IN_EACH_ORDER
		FAILS(sample_deadlock(96), "deadlock: 96 of 96 threads wait for each other");
	FAILS(sample_deadlock(96), "thread 0 at __syncwarp(), thread 1 at __syncthreads()");
	FAILS(sample_two_barriers(64), "comes to __syncthreads_or(), but 1 threads of its block wait at __syncthreads()");
}

static void masks_that_differ(void **state)
{
	assert_int_equal(sample_masks(32, 0x1, 0xfffffffe), 0);
	FAILS(sample_masks(32, 0xffffffff, 0xfffffffe), "lane 0 of its warp waits for it at __shfl_sync() with mask 0xffffffff");
	FAILS(sample_masks(32, 0xffffffff, 0x7fffffff), "lane 0 waits for it at __shfl_sync() with mask 0xffffffff");
	FAILS(sample_masks(32, 0xfffffffe, 0xffffffff), "does not name its own lane 0");
	FAILS(sample_masks(31, 0xffffffff, 0x7fffffff), "names lane 31, but the block ends before it");
}

static void shared_memory_begins_as_nan(void **state)
{
	float *out = device_make(96 * sizeof *out);
	IN_EACH_ORDER {
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
	const unsigned int one[3] = { 1, 1, 1 }, none[3] = { 1, 0, 1 }, many[3] = { 32, 33, 1 }, deep[3] = { 1, 1, 65 },
		rows[3] = { 1, 65536, 1 };
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
		cmocka_unit_test(barriers_and_shared_memory),
		cmocka_unit_test(shuffles_between_barriers),
		cmocka_unit_test(every_thread_of_a_grid),
		cmocka_unit_test(all_shuffles),
		cmocka_unit_test(votes_of_some_lanes),
		cmocka_unit_test(atomics_of_all_threads),
		cmocka_unit_test(a_missing_barrier_is_seen_in_other_orders),
		cmocka_unit_test(an_order_that_counts_is_seen),
		cmocka_unit_test(blocks_have_no_order),
		cmocka_unit_test(a_thread_that_leaves_before_a_barrier),
		cmocka_unit_test(threads_that_wait_for_each_other),
		cmocka_unit_test(masks_that_differ),
		cmocka_unit_test(shared_memory_begins_as_nan),
		cmocka_unit_test(launches_that_no_gpu_takes),
	};
	return DEVICE_RUN_TESTS(tests, fill, NULL);
}
