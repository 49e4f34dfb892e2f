/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of one block: each runs until it has to wait for others, then another one that can
 * run goes on, in the order that is being tried. What a GPU leaves undefined is a fault here: the
 * launch ends with a message. */
#ifndef MUSTER_SHIM_BLOCK_H
#define MUSTER_SHIM_BLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WARP_LANES 32

/* CUDA's own, of the thread that is running. */
struct shim_triple {
	unsigned int x, y, z;
};
extern struct shim_triple threadIdx, blockIdx, blockDim, gridDim;

/* Which of the threads that can run goes on. */
enum block_order { BLOCK_ASCENDING, BLOCK_DESCENDING, BLOCK_RANDOM };

/* Runs body(arg) in each of the `threads` (up to 1,024) threads of the block that blockIdx and
 * blockDim name. `seed` is of BLOCK_RANDOM. Returns 0, or -1 after a fault (block_fault_text). */
int block_run(unsigned int threads, enum block_order order, uint64_t seed, void (*body)(void *),
	void *arg);

/* Behind the last block of a launch: until then the thread sanitizer takes all blocks to run at
 * once. */
void blocks_end(void);

/* What follows is for a thread of a kernel. */

/* The barriers of a block, one of which its threads wait at together; how to fold the predicates.
 */
enum block_barrier { BARRIER_SYNC, BARRIER_OR, BARRIER_AND, BARRIER_COUNT };
int block_wait(enum block_barrier barrier, int predicate);

/* The number of the running thread in its block, and how many the block has. */
unsigned int block_thread(void);
unsigned int block_threads(void);

/* Lets others run until block_wake() is called for this thread; `what` says in a message what it
 * waits for. */
void block_sleep(const char *what);
void block_wake(unsigned int thread);

/* An even chance by the seed of the random orders; in ascending order always no, in descending
 * always yes. */
int block_coin(void);

/* Ends the launch: the message names the block and the thread. */
void block_fault(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
const char *block_fault_text(void);

#ifdef __cplusplus
}
#endif

#endif
