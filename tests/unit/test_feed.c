/* SPDX-License-Identifier: Apache-2.0 */
/* feed: over any world size, and over a change of it in mid-epoch, the batches that ranks really get hold every sample
 * exactly once an epoch. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "files.h"
#include "trainer/feed.h"
#include "trainer/tree.h"

#define SAMPLES 101
#define POSITIONS 4
#define BATCH 24
#define MICROBATCH 3
#define SLOTS 8

static struct dataset *dataset;
static unsigned int times[SAMPLES];

/* Sample i is the tokens 4i, 4i+1, …: its first token tells which it is. */
static int open_samples(void **state)
{
	uint16_t tokens[SAMPLES * POSITIONS + 1];
	if (files_setup(state) < 0)
		return -1;
	for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
		tokens[i] = (uint16_t)i;
	dataset = dataset_open_tokens(files_write("count.u16", tokens, sizeof tokens), POSITIONS, NULL);
	return dataset ? 0 : -1;
}

static int close_samples(void **state)
{
	dataset_close(dataset);
	return files_teardown(state);
}

static void count_batch(const struct batch *batch)
{
	for (int i = 0; i < batch->samples; i++)
		if (batch->targets[i * POSITIONS] >= 0)
			times[batch->tokens[i * POSITIONS] / POSITIONS]++;
}

static struct sampler sampler_of(bool complete)
{
	return (struct sampler){ .seed = 7, .count = SAMPLES, .global_batch = BATCH, .complete = complete, .shuffle = true };
}

/* What all ranks of a world read in steps [first, last], added to `times`. */
static void read_steps(bool complete, int world, uint64_t first, uint64_t last)
{
	for (int rank = 0; rank < world; rank++) {
		struct feed_plan plan = { .sampler = sampler_of(complete), .vocabulary = 65536, .microbatch = MICROBATCH,
			.slot_microbatches = BATCH / MICROBATCH / SLOTS, .first_step = first, .last_step = last };
		plan.first_slot = tree_rank_slots(SLOTS, world, rank, &plan.slots);
		struct err err;
		struct feed *feed = feed_start(dataset, &plan, &err);
		assert_non_null(feed);
		for (uint64_t i = 0; i < (last - first + 1) * (uint64_t)(plan.slots * plan.slot_microbatches); i++) {
			const struct batch *batch = feed_next(feed, &err);
			assert_non_null(batch);
			count_batch(batch);
		}
		feed_stop(feed);
	}
}

static void every_sample_once_for_every_world(void **state)
{
	const uint64_t steps = (SAMPLES + BATCH - 1) / BATCH;
	for (int world = 1; world <= SLOTS; world++) {
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			memset(times, 0, sizeof times);
			read_steps(true, world, epoch * steps + 1, epoch * steps + steps);
			for (int i = 0; i < SAMPLES; i++)
				assert_int_equal(times[i], 1);
		}
	}
}

static void every_sample_once_over_a_resume_with_another_world(void **state)
{
	const uint64_t steps = (SAMPLES + BATCH - 1) / BATCH;
	for (int before = 1; before <= SLOTS; before++) {
		memset(times, 0, sizeof times);
		read_steps(true, before, 1, 2);
		read_steps(true, SLOTS + 1 - before, 3, steps);
		for (int i = 0; i < SAMPLES; i++)
			assert_int_equal(times[i], 1);
	}
}

static void a_dropped_batch_is_not_read(void **state)
{
	unsigned int sum = 0;
	memset(times, 0, sizeof times);
	read_steps(false, 3, 1, SAMPLES / BATCH);
	for (int i = 0; i < SAMPLES; i++) {
		assert_true(times[i] <= 1);
		sum += times[i];
	}
	assert_int_equal(sum, SAMPLES / BATCH * BATCH);
}

static void counted_samples_of_a_step(void **state)
{
	struct sampler whole = sampler_of(false), padded = sampler_of(true);
	assert_int_equal(feed_step_samples(&whole, 5), BATCH);
	assert_int_equal(feed_step_samples(&padded, 4), BATCH);
	assert_int_equal(feed_step_samples(&padded, 5), SAMPLES % BATCH);
	assert_int_equal(feed_step_samples(&padded, 6), BATCH);
}

static void hash_tells_the_samples_of_a_step(void **state)
{
	struct feed_plan plan = { .sampler = sampler_of(true), .vocabulary = 65536, .microbatch = MICROBATCH,
		.slot_microbatches = 1, .slots = 1, .first_step = 1, .last_step = 9 };
	uint64_t hashes[2][3];
	for (int run = 0; run < 2; run++) {
		struct feed *feed = feed_start(dataset, &plan, NULL);
		for (int step = 0; step < 3; step++) {
			assert_non_null(feed_next(feed, NULL));
			hashes[run][step] = feed_hash(feed);
		}
		feed_stop(feed);
	}
	assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
	assert_int_not_equal(hashes[0][0], hashes[0][1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_sample_once_for_every_world),
		cmocka_unit_test(every_sample_once_over_a_resume_with_another_world),
		cmocka_unit_test(a_dropped_batch_is_not_read),
		cmocka_unit_test(counted_samples_of_a_step),
		cmocka_unit_test(hash_tells_the_samples_of_a_step),
	};
	return cmocka_run_group_tests(tests, open_samples, close_samples);
}
