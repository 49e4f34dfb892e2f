/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which samples a rank reads: the sampler says which sample is at place p of step k, and a
 * rank reads the places of its slots. */
#include "trainer/data/feed.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/hash.h"

#define DEPTH 8 /* microbatches read ahead */

/* A position in the rank's order of microbatches. */
struct cursor {
	uint64_t step;
	int64_t microbatch; /* within this rank's share of the step */
};

struct feed {
	struct feed_plan plan;
	struct prefetch *prefetch;
	struct cursor pushed, next;
	uint64_t *samples; /* scratch for one microbatch */
	struct hasher *hasher;
	bool read_any; /* a sample was read since the last feed_hash() */
};

struct feed *feed_start(const struct dataset *dataset, const struct feed_plan *plan,
	struct err *err)
{
	struct feed *feed = calloc(1, sizeof *feed);
	if (!feed) {
		err_set(err, "data: out of memory");
		return NULL;
	}
	feed->plan = *plan;
	feed->pushed = feed->next = (struct cursor) { .step = plan->first_step };
	feed->samples = calloc((size_t)plan->microbatch, sizeof *feed->samples);
	feed->hasher = hasher_create();
	if (!feed->samples || !feed->hasher)
		err_set(err, "data: out of memory");
	else
		feed->prefetch = prefetch_start(dataset, plan->microbatch, plan->vocabulary, DEPTH, err);
	if (!feed->prefetch) {
		feed_stop(feed);
		return NULL;
	}
	return feed;
}

/* Writes the samples at the cursor to feed->samples, and moves the cursor on. */
static void samples_at(struct feed *feed, struct cursor *cursor)
{
	const struct feed_plan *plan = &feed->plan;
	uint64_t first = ((uint64_t)plan->first_slot * (uint64_t)plan->slot_microbatches
						 + (uint64_t)cursor->microbatch)
		* (uint64_t)plan->microbatch;
	for (int i = 0; i < plan->microbatch; i++)
		feed->samples[i] = sampler_at(&plan->sampler, cursor->step - 1, first + (uint64_t)i);
	if (++cursor->microbatch == (int64_t)plan->slots * plan->slot_microbatches) {
		cursor->microbatch = 0;
		cursor->step++;
	}
}

const struct batch *feed_next(struct feed *feed, struct err *err)
{
	while (feed->pushed.step <= feed->plan.last_step && prefetch_pending(feed->prefetch) < DEPTH) {
		samples_at(feed, &feed->pushed);
		if (prefetch_push(feed->prefetch, feed->samples, err) < 0)
			return NULL;
	}
	samples_at(feed, &feed->next);
	hasher_add(feed->hasher, feed->samples, (size_t)feed->plan.microbatch * sizeof *feed->samples);
	for (int i = 0; i < feed->plan.microbatch; i++)
		feed->read_any |= feed->samples[i] != SAMPLER_NONE;
	return prefetch_next(feed->prefetch, err);
}

uint64_t feed_hash(struct feed *feed)
{
	uint64_t hash = feed->read_any ? hasher_value(feed->hasher).low | 1 : 0;
	hasher_reset(feed->hasher);
	feed->read_any = false;
	return hash;
}

void feed_stop(struct feed *feed)
{
	if (!feed)
		return;
	if (feed->prefetch)
		prefetch_stop(feed->prefetch);
	hasher_destroy(feed->hasher);
	free(feed->samples);
	free(feed);
}

uint64_t feed_step_samples(const struct sampler *sampler, uint64_t step)
{
	uint64_t count = 0;
	if (!sampler->complete)
		return sampler->global_batch;
	for (uint64_t place = 0; place < sampler->global_batch; place++)
		count += sampler_at(sampler, step - 1, place) != SAMPLER_NONE;
	return count;
}
