/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample is read when: a permutation of [0, count), keyed by seed and epoch; its position is
 * one integer. Nothing is stored for each sample, and the order does not depend on the world size.
 * A value. */
#ifndef MUSTER_SAMPLER_H
#define MUSTER_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

struct sampler {
	uint64_t seed;
	uint64_t count;        /* samples in the data set, > 0 */
	uint64_t global_batch; /* samples a step, > 0 */
	bool complete; /* fill up an epoch's last partial batch with SAMPLER_NONE; false: drop it */
	bool shuffle;
};

#define SAMPLER_NONE UINT64_MAX /* a place without a sample, in a filled-up last batch */

/* Steps in one epoch: count / global_batch, rounded down, or up if `complete`. 0 when count <
 * global_batch and not `complete`. */
uint64_t sampler_epoch_steps(const struct sampler *sampler);

/* The sample at place `place` (0 ≤ place < global_batch) of step `step` (from 0), or
 * SAMPLER_NONE. */
uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);

/* The permutation itself: maps index in [0, count) to [0, count), one to one for every (seed,
 * epoch). A Feistel network over the next even power of two with cycle walking (Black and Rogaway,
 * CT-RSA 2002); Philox is the round function. */
uint64_t sampler_permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

#endif
