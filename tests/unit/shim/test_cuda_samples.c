/* SPDX-License-Identifier: Apache-2.0 */
/* What CUDA defines of barriers, shared memory, shuffles, votes and atomics: the shim's kernels on
 * the host, and the same on the GPU, so that it is known to be the same. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/shim/device.h"
#include "tests/shim/samples.h"

#define MOST 1024

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

static void check_sum(int (*sum)(float *, const float *, unsigned int, unsigned int),
	unsigned int blocks, unsigned int threads)
{
	float out[8];
	double exact[8] = { 0 };
	for (unsigned int i = 0; i < blocks * threads; i++)
		exact[i / threads] += (double)input[i];
	float *device = device_make(blocks * sizeof(float)),
		  *in = device_copy(input, blocks * threads * sizeof(float));
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

/* A launch of a sample, and what it is to leave in its output. */
struct launch {
	uint32_t *out;
	const unsigned int *grid, *block; /* of sample_numbers */
	unsigned int threads;
	int operand, width;
};

static void run_numbers(void *arg)
{
	struct launch *l = arg;
	assert_int_equal(sample_numbers(l->out, l->grid, l->block), 0);
}

static void every_thread_of_a_grid(void **state)
{
	static const unsigned int shapes[][2][3] = { { { 1, 1, 1 }, { 1, 1, 1 } },
		{ { 3, 1, 1 }, { 33, 1, 1 } }, { { 2, 3, 5 }, { 4, 3, 2 } }, { { 1, 7, 2 }, { 1, 1, 64 } },
		{ { 5, 1, 2 }, { 16, 64, 1 } } };
	static uint32_t out[10 * MOST];
	for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
		const unsigned int *grid = shapes[s][0], *block = shapes[s][1];
		uint32_t count = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2];
		struct launch launch = { .out = device_make(count * sizeof *out),
			.grid = grid,
			.block = block };
		device_same_in_each_order("the numbers", run_numbers, &launch, out, launch.out,
			count * sizeof *out);
		for (uint32_t i = 0; i < count; i++)
			assert_int_equal(out[i], i);
		device_free(launch.out);
	}
}

/* PTX ISA, shfl.sync: the thread whose value comes, for idx, up, down and bfly. */
static uint32_t shuffled(int kind, uint32_t thread, int operand, int width)
{
	int lane = (int)thread % 32, base = (int)thread - lane, segment = lane / width;
	int from[4] = { segment * width + operand % width, lane - operand, lane + operand,
		lane ^ operand };
	bool inside =
		kind == 0 || (kind == 1 ? from[1] >= segment * width : from[kind] < (segment + 1) * width);
	return (uint32_t)(base + (inside ? from[kind] : lane));
}

static void run_shuffles(void *arg)
{
	struct launch *l = arg;
	assert_int_equal(sample_shuffles(l->out, l->threads, l->operand, l->width), 0);
}

static void all_shuffles(void **state)
{
	uint32_t out[64 * 4];
	struct launch launch = { .out = device_make(sizeof out), .threads = 64 };
	for (launch.width = 1; launch.width <= 32; launch.width *= 2)
		for (launch.operand = 0; launch.operand < 32; launch.operand++) {
			device_same_in_each_order("a shuffle", run_shuffles, &launch, out, launch.out,
				sizeof out);
			for (uint32_t i = 0; i < 64 * 4; i++)
				assert_int_equal(out[i], shuffled((int)i % 4, i / 4, launch.operand, launch.width));
		}
	device_free(launch.out);
}

static void run_votes(void *arg)
{
	struct launch *l = arg;
	assert_int_equal(sample_votes(l->out, l->threads), 0);
}

static void votes_of_some_lanes(void **state)
{
	uint32_t out[96][6];
	struct launch launch = { .out = device_make(sizeof out), .threads = 96 };
	device_same_in_each_order("a vote", run_votes, &launch, out, launch.out, sizeof out);
	for (uint32_t i = 0; i < 96; i++) {
		uint32_t ballot = 0;
		for (uint32_t lane = i % 2; lane < 32; lane += 2)
			ballot |= (uint32_t)((i / 32 * 32 + lane) % 3 == 0) << lane;
		const uint32_t expected[6] = { ballot, i % 2 && i / 32 % 2 == 0, i % 2, 1, 0, 32 };
		for (int k = 0; k < 6; k++)
			if ((k == 1 || k == 2 ? out[i][k] != 0 : out[i][k]) != expected[k])
				fail_msg("vote %d of thread %u is %u, not %u", k, i, out[i][k], expected[k]);
	}
	device_free(launch.out);
}

static void run_atomics(void *arg)
{
	struct launch *l = arg;
	const unsigned int zeros[2] = { 0, 0 };
	device_write(l->out, zeros, sizeof zeros);
	assert_int_equal(sample_atomics(l->out, 7, l->threads), 0);
}

static void atomics_of_all_threads(void **state)
{
	unsigned int counts[2];
	struct launch launch = { .out = device_make(sizeof counts), .threads = 333 };
	device_same_in_each_order("the counts", run_atomics, &launch, counts, launch.out,
		sizeof counts);
	assert_int_equal(counts[0], 7 * 333);
	assert_int_equal(counts[1], 7 * 333 - 1);
	device_free(launch.out);
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
	};
	return DEVICE_RUN_TESTS(tests, fill, NULL);
}
