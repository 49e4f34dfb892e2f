/* SPDX-License-Identifier: Apache-2.0 */
/* A launch on the host: one block of the grid after the other, in the order that is being tried. */
#ifndef MUSTER_SHIM_GRID_H
#define MUSTER_SHIM_GRID_H

#include <stddef.h>
#include <stdint.h>

#include "tests/shim/block.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CUDA's numbers of what a launch can return. */
enum grid_error { GRID_MEMORY = 2, GRID_CONFIGURATION = 9, GRID_VALUE = 1, GRID_FAILURE = 719 };

#define GRID_ORDERS 5 /* ascending, descending, three random ones */

/* Runs body(arg) for each thread of the grid. Returns 0 or an enum grid_error, then with a line on
 * stderr. */
int grid_launch(struct shim_triple grid, struct shim_triple threads, size_t shared_bytes,
	void (*body)(void *), void *arg);

/* The order of the threads and blocks of the launches that follow, 0 … GRID_ORDERS - 1; at first 0.
 */
void grid_order(int order);

/* Of each launch that follows, only the blocks with these numbers (x fastest); count 0: all of them
 * again. */
void grid_only(uint64_t first, uint64_t count);

/* A launch that is put off. */
struct grid_call {
	struct shim_triple grid, threads;
	size_t shared_bytes;
	void (*body)(void *arg);
	void *arg;
	void (*end)(void *arg); /* of the argument */
};

/* Who takes the launches that follow instead of running them, to run each by grid_run() and to end
 * it by grid_drop(): the stand-in of the runtime. What it returns is the launch's result. NULL:
 * nobody. */
typedef int grid_taker(void *stream, struct grid_call *call);
void grid_queue(grid_taker *taker);
int grid_is_queued(void);
/* Hands a launch over; GRID_MEMORY when out of it. */
int grid_put_off(void *stream, const struct grid_call *call);
int grid_run(const struct grid_call *call);
void grid_drop(struct grid_call *call);

/* Launches so far. */
uint64_t grid_launches(void);

#ifdef __cplusplus
}
#endif

#endif
