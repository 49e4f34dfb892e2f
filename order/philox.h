/* SPDX-License-Identifier: Apache-2.0 */
/* Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11): random numbers as a pure function of a counter and a key, so that no generator has a
 * state to save. */
#ifndef MUSTER_PHILOX_H
#define MUSTER_PHILOX_H

#include <stdint.h>

/* Counter word 3 names the use, so that two uses of one seed never share a number. */
enum philox_use { PHILOX_INIT = 1, PHILOX_SAMPLER = 2, PHILOX_DROPOUT = 3, PHILOX_TOKEN = 4 };

/* The four random words of (counter, key); `out` may be `counter`. Word 0 is the least
 * significant. */
void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
