/* SPDX-License-Identifier: Apache-2.0 */
/* Launches on the host. */
#include "config.h"

#include "tests/shim/grid.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/shim/fiber.h"
#include "tests/shim/shared.h"

/* A block's most on every GPU of today: CUDA's programming guide, "Compute capabilities". */
#define THREADS_MOST 1024u
#define DEPTH_MOST 64u
#define ROWS_MOST 65535u

static int grid_order_now;
static uint64_t only_first, only_count, launches;

UNWATCHED void grid_order(int order)
{
	grid_order_now = order;
}

UNWATCHED void grid_only(uint64_t first, uint64_t count)
{
	only_first = first;
	only_count = count;
}

UNWATCHED uint64_t grid_launches(void)
{
	return launches;
}

UNWATCHED static int fail(int error, const char *what)
{
	fprintf(stderr, "shim: couldn't run the kernel: %s\n", what);
	return error;
}

UNWATCHED static int check(struct shim_triple grid, struct shim_triple threads, size_t shared_bytes)
{
	uint64_t in_block = (uint64_t)threads.x * threads.y * threads.z;
	if (in_block == 0 || threads.x > THREADS_MOST || threads.y > THREADS_MOST
		|| threads.z > DEPTH_MOST || in_block > THREADS_MOST)
		return fail(GRID_CONFIGURATION, "a block has 1 to 1,024 threads");
	if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > INT32_MAX || grid.y > ROWS_MOST
		|| grid.z > ROWS_MOST)
		return fail(GRID_CONFIGURATION, "a grid has 1 to 2^31 - 1 by 65,535 by 65,535 blocks");
	if (shared_bytes > SHARED_MOST)
		return fail(GRID_VALUE, "a block has at most 227 KiB of shared memory");
	return 0;
}

/* splitmix64: a number for each pair. */
UNWATCHED static uint64_t mix(uint64_t seed, uint64_t i)
{
	uint64_t z = seed * UINT64_C(0xD1342543DE82EF95) + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

/* The numbers of the blocks in a random order; from malloc. */
UNWATCHED static uint64_t *shuffled(uint64_t first, uint64_t count)
{
	uint64_t *numbers = malloc(count * sizeof *numbers);
	for (uint64_t i = 0; numbers && i < count; i++) {
		uint64_t j = mix((uint64_t)grid_order_now, i) % (i + 1);
		numbers[i] = numbers[j];
		numbers[j] = first + i;
	}
	return numbers;
}

UNWATCHED static int run_blocks(uint64_t first, uint64_t count, unsigned int threads,
	void (*body)(void *), void *arg)
{
	enum block_order order = grid_order_now == 0 ? BLOCK_ASCENDING
		: grid_order_now == 1                    ? BLOCK_DESCENDING
												 : BLOCK_RANDOM;
	uint64_t *numbers = order == BLOCK_RANDOM ? shuffled(first, count) : NULL;
	int status = 0;
	if (order == BLOCK_RANDOM && !numbers)
		return fail(GRID_MEMORY, "out of memory");
	for (uint64_t i = 0; i < count && status == 0; i++) {
		uint64_t number = numbers       ? numbers[i]
			: order == BLOCK_DESCENDING ? first + count - 1 - i
										: first + i;
		blockIdx.x = (unsigned int)(number % gridDim.x);
		blockIdx.y = (unsigned int)(number / gridDim.x % gridDim.y);
		blockIdx.z = (unsigned int)(number / gridDim.x / gridDim.y);
		shared_block();
		if (block_run(threads, order, mix((uint64_t)grid_order_now, number), body, arg))
			status = fail(GRID_FAILURE, block_fault_text());
	}
	blocks_end();
	free(numbers);
	return status;
}

UNWATCHED int grid_launch(struct shim_triple grid, struct shim_triple threads, size_t shared_bytes,
	void (*body)(void *), void *arg)
{
	uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z, first = 0, count = blocks;
	int error = check(grid, threads, shared_bytes);
	launches++;
	if (error)
		return error;
	if (shared_launch(shared_bytes))
		return fail(GRID_MEMORY, "couldn't map shared memory");
	gridDim = grid;
	blockDim = threads;
	if (only_count) {
		first = only_first < blocks ? only_first : blocks;
		count = only_count < blocks - first ? only_count : blocks - first;
	}
	return run_blocks(first, count, threads.x * threads.y * threads.z, body, arg);
}

/* ---- launches that are put off ---- */

static grid_taker *taker;

UNWATCHED void grid_queue(grid_taker *given)
{
	taker = given;
}
UNWATCHED int grid_is_queued(void)
{
	return taker != NULL;
}

UNWATCHED int grid_put_off(void *stream, const struct grid_call *given)
{
	struct grid_call *call = malloc(sizeof *call);
	if (!call)
		return fail(GRID_MEMORY, "out of memory");
	*call = *given;
	return taker(stream, call);
}

UNWATCHED int grid_run(const struct grid_call *call)
{
	return grid_launch(call->grid, call->threads, call->shared_bytes, call->body, call->arg);
}

UNWATCHED void grid_drop(struct grid_call *call)
{
	call->end(call->arg);
	free(call);
}
