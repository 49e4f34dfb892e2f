/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample is read when: a keyed permutation of [0, count) by seed and epoch, with one integer
 * as its position. A value; nothing is stored a sample, and the order does not know the world size.
 */
#ifndef MUSTER_SAMPLER_H
#define MUSTER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampler {
	uint64_t seed;
	uint64_t count;        /* samples of the data set, > 0 */
	uint64_t global_batch; /* samples a step, > 0 */
	bool complete; /* the last partial batch of an epoch: false dropped, true completed with "no
					  sample" places */
	bool shuffle;
};

#define SAMPLER_NONE UINT64_MAX /* a place of the last, completed batch that holds no sample */

/* Steps of one epoch: floor or ceiling of count / global_batch. 0 when count < global_batch and not
 * complete. */
uint64_t sampler_epoch_steps(const struct sampler *sampler);

/* Sample at place `place` (0 ≤ place < global_batch) of step `step` (counted from 0), or
 * SAMPLER_NONE. */
uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);

/* The permutation itself: index of [0, count) to [0, count), a bijection for every (seed, epoch).
 * Feistel network over the next even power of two with cycle walking (Black and Rogaway, CT-RSA
 * 2002), Philox as the round function. */
uint64_t sampler_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

#endif
