/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes of a warp meet: each waits for exactly those that its mask names, and then knows what
 * each brought. */
#ifndef MUSTER_SHIM_WARP_H
#define MUSTER_SHIM_WARP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WARP_WORDS 6 /* that a lane can bring */

enum warp_call {
	WARP_SYNC,
	WARP_SHUFFLE,
	WARP_SHUFFLE_UP,
	WARP_SHUFFLE_DOWN,
	WARP_SHUFFLE_XOR,
	WARP_BALLOT,
	WARP_ANY,
	WARP_ALL,
	WARP_MATCH,
	WARP_MMA,
	WARP_LDMATRIX,
};

/* Waits for the lanes in `mask`, and returns what each of them brought, of `words` words, by lane:
 * to be read until warp_leave(), which must follow. Orders nothing: as on the GPU, only WARP_SYNC
 * makes the lanes' writes to memory seen. */
const uint32_t (
	*warp_meet(enum warp_call call, uint32_t mask, const uint32_t *brought, int words))[WARP_WORDS];
void warp_leave(void);

/* The four shuffles of up to 64 bits: the value of the lane that `operand` and `width` (2, 4, … 32)
 * lead to. */
uint64_t warp_shuffle(enum warp_call call, uint32_t mask, uint64_t value, int operand, int width);

/* The lanes in `mask` whose predicate is not 0. */
uint32_t warp_ballot(enum warp_call call, uint32_t mask, int predicate);

void warp_sync(uint32_t mask);
unsigned int warp_lane(void);

/* Of block.c: a thread has left the kernel; and a new block begins. */
void warp_left(unsigned int thread);
void warps_reset(unsigned int threads);

#ifdef __cplusplus
}
#endif

#endif
