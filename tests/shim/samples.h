/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that show what the shim does, right ones and such with a planted fault. Each launcher
 * returns what LAUNCH does. */
#ifndef MUSTER_SHIM_SAMPLES_H
#define MUSTER_SHIM_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* out[block] = the sum of in[block · threads …], by a tree in shared memory; threads: a power of
 * two. */
int sample_tree_sum(float *out, const float *in, unsigned int blocks, unsigned int threads);
/* The same by shuffles, one dynamic word a warp, and a barrier; threads: a multiple of 32 up to
 * 1,024. */
int sample_warp_sum(float *out, const float *in, unsigned int blocks, unsigned int threads);
/* out[number of the thread in the grid] = that number, by a grid and blocks of three dimensions. */
int sample_numbers(uint32_t *out, const unsigned int grid[3], const unsigned int block[3]);
/* out[thread][i] by one block of `threads`: 0 … 3 the shuffles from lane `operand`, up, down and
 * xor of it, in segments of `width`; each lane brings its thread number. */
int sample_shuffles(uint32_t *out, unsigned int threads, int operand, int width);
/* out[thread][i]: ballot, any, all of `odd thread`, by even lanes and by odd lanes apart; then or,
 * and, count of the block. */
int sample_votes(uint32_t *out, unsigned int threads);
/* counts[0] += 1 and counts[1] = the largest number, in each thread. */
int sample_atomics(unsigned int *counts, unsigned int blocks, unsigned int threads);

/* out[i] = in[i - 1] for i > 0, through shared memory; in[0] for i = 0. Without the barrier it is
 * right in ascending order. */
int sample_neighbour(float *out, const float *in, unsigned int threads, bool barrier);
/* The same within a warp, with __syncwarp() or without. */
int sample_neighbour_warp(float *out, const float *in, unsigned int threads, bool barrier);
/* Each thread puts its number where it comes to. */
int sample_arrival(unsigned int *out, unsigned int *counter, unsigned int threads);
/* Block 1 reads what block 0 writes. */
int sample_blocks_share(float *out, unsigned int threads);
/* `leaver` leaves before a barrier. */
int sample_early_exit(unsigned int threads, unsigned int leaver);
/* A lane leaves that another one waits for. */
int sample_early_exit_warp(unsigned int leaver);
/* Thread 0 waits for the warp, the others for the block. */
int sample_deadlock(unsigned int threads);
/* Different barriers of a block at once. */
int sample_two_barriers(unsigned int threads);
/* Lane 0 calls with one mask, the other lanes with another. */
int sample_masks(unsigned int threads, uint32_t first, uint32_t others);
/* out[i] is read from shared memory of `count` elements that only thread 0 has written to; at i =
 * `count` past its end. */
int sample_unwritten(float *out, unsigned int threads);
int sample_shared_past_end(float *out, unsigned int threads);
/* out[i] = in[i + 1]: past the end of in[threads]. */
int sample_past_end(float *out, const float *in, unsigned int threads);
/* out[i] = 1 for i < count, a multiple of 256; `narrow`: with a number of 32 bits. */
int sample_far(float *out, size_t count, bool narrow);
/* More shared memory than there is. */
int sample_too_much_shared(size_t dynamic_bytes);

#ifdef __cplusplus
}
#endif

#endif
