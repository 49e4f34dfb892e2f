/* SPDX-License-Identifier: Apache-2.0 */
/* The microbatches of one rank, in the order of its steps and slots. Reads ahead, across steps
 * too. */
#ifndef MUSTER_FEED_H
#define MUSTER_FEED_H

#include <stdint.h>

#include "common/err.h"
#include "order/sampler.h"
#include "trainer/data/dataset.h"

struct feed_plan {
	struct sampler sampler;
	int vocabulary;                 /* number of tokens or classes */
	int microbatch;                 /* samples of a microbatch */
	int slot_microbatches;          /* microbatches of a slot */
	int first_slot, slots;          /* this rank's */
	uint64_t first_step, last_step; /* counted from 1 */
};

struct feed;

struct feed *feed_start(const struct dataset *dataset, const struct feed_plan *plan,
	struct err *err);

/* Returns the next microbatch, valid until the following call; NULL with the error of reading
 * it. */
const struct batch *feed_next(struct feed *feed, struct err *err);

/* A hash of the sample numbers read since the last call; 0 where no place held a sample, as on some
 * ranks in the last, padded step of an epoch. */
uint64_t feed_hash(struct feed *feed);

/* `feed` may be NULL. */
void feed_stop(struct feed *feed);

/* The number of samples of a step that count: all but the places that only fill up the last batch
 * of an epoch. `step` from 1. */
uint64_t feed_step_samples(const struct sampler *sampler, uint64_t step);

#endif
