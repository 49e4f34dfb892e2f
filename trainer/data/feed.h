/* SPDX-License-Identifier: Apache-2.0 */
/* The microbatches of one rank, in the order of its steps and slots, read ahead across the steps.
 */
#ifndef MUSTER_FEED_H
#define MUSTER_FEED_H

#include <stdint.h>

#include "common/err.h"
#include "order/sampler.h"
#include "trainer/data/dataset.h"

struct feed_plan {
	struct sampler sampler;
	int vocabulary;                 /* tokens or classes there are */
	int microbatch;                 /* samples of one */
	int slot_microbatches;          /* of one slot */
	int first_slot, slots;          /* this rank's */
	uint64_t first_step, last_step; /* counted from 1 */
};

struct feed;

struct feed *feed_start(const struct dataset *dataset, const struct feed_plan *plan,
	struct err *err);

/* The next microbatch, valid until the following call; NULL with the error of reading it. */
const struct batch *feed_next(struct feed *feed, struct err *err);

/* Hash of the sample numbers that were read since the last call; 0 where no place held a sample, as
 * with some ranks in the last, padded step of an epoch. */
uint64_t feed_hash(struct feed *feed);

/* NULL is allowed. */
void feed_stop(struct feed *feed);

/* Samples of a step that count: all but the places that complete the last batch of an epoch. `step`
 * from 1. */
uint64_t feed_step_samples(const struct sampler *sampler, uint64_t step);

#endif
