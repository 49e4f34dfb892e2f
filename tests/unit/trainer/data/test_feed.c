/* SPDX-License-Identifier: Apache-2.0 */
/* feed: what the ranks of a run really get, whatever the size of the data, the slots, the world
 * sizes and the moments at which one takes over from another: every sample exactly once an epoch,
 * each at the place where a world of one that nobody disturbs reads it. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "order/tree.h"
#include "tests/unit/files.h"
#include "trainer/data/feed.h"

#define SAMPLES 30000
#define POSITIONS 2
#define EPOCHS 2
#define NOTHING UINT32_MAX /* of a place that holds no sample */

static struct dataset *dataset;

/* Samples [first, end) in a file of its own. Sample i is the two halves of i; one token more is the
 * last target. */
static void write_shard(const char *name, uint32_t first, uint32_t end)
{
	static uint16_t tokens[SAMPLES * POSITIONS + 1];
	size_t count = 0;
	for (uint32_t i = first; i < end; i++) {
		tokens[count++] = (uint16_t)i;
		tokens[count++] = (uint16_t)(i >> 16);
	}
	tokens[count++] = 7;
	files_write(name, tokens, count * sizeof tokens[0]);
}

/* Files of different sizes, the first few so small that each run meets their borders. */
static int open_samples(void **state)
{
	if (files_setup(state) < 0)
		return -1;
	write_shard("part-1.u16", 0, 1);
	write_shard("part-2.u16", 1, 6);
	write_shard("part-3.u16", 6, 9);
	write_shard("part-4.u16", 9, SAMPLES);
	dataset = dataset_open_tokens(files_path("part-*.u16"), POSITIONS, NULL);
	return dataset && dataset_samples(dataset) == SAMPLES ? 0 : -1;
}

static int close_samples(void **state)
{
	dataset_close(dataset);
	return files_teardown(state);
}

/* The first `count` samples, and how a step is divided. */
struct job {
	uint64_t count;
	int microbatch, slot_microbatches, slots;
	bool complete, shuffle;
};

static uint64_t batch_of(const struct job *job)
{
	return (uint64_t)job->microbatch * (uint64_t)job->slot_microbatches * (uint64_t)job->slots;
}

static struct sampler sampler_of(const struct job *job)
{
	return (struct sampler) { .seed = 7,
		.count = job->count,
		.global_batch = batch_of(job),
		.complete = job->complete,
		.shuffle = job->shuffle };
}

static struct feed_plan plan_of(const struct job *job, int world, int rank, uint64_t first,
	uint64_t last)
{
	struct feed_plan plan = { .sampler = sampler_of(job),
		.vocabulary = 65536,
		.microbatch = job->microbatch,
		.slot_microbatches = job->slot_microbatches,
		.first_step = first,
		.last_step = last };
	plan.first_slot = tree_rank_slots(job->slots, world, rank, &plan.slots);
	return plan;
}

static uint32_t sample_in(const struct batch *batch, int row)
{
	const int32_t *tokens = batch->tokens + (size_t)row * POSITIONS;
	return batch->targets[(size_t)row * POSITIONS] < 0
		? NOTHING
		: (uint32_t)tokens[0] | (uint32_t)tokens[1] << 16;
}

/* What one rank gets in steps [first, last], at its places of them. */
static void read_rank(const struct job *job, int world, int rank, uint64_t first, uint64_t last,
	uint32_t *places)
{
	struct err err;
	const struct feed_plan plan = plan_of(job, world, rank, first, last);
	struct feed *feed = feed_start(dataset, &plan, &err);
	assert_non_null(feed);
	for (uint64_t step = first; step <= last; step++) {
		uint32_t *to = places + (step - first) * batch_of(job)
			+ (size_t)(plan.first_slot * plan.slot_microbatches * plan.microbatch);
		for (int i = 0; i < plan.slots * plan.slot_microbatches; i++) {
			const struct batch *batch = feed_next(feed, &err);
			assert_non_null(batch);
			for (int row = 0; row < batch->samples; row++)
				*to++ = sample_in(batch, row);
		}
	}
	feed_stop(feed);
}

static void read_steps(const struct job *job, int world, uint64_t first, uint64_t last,
	uint32_t *places)
{
	for (int rank = 0; rank < world; rank++)
		read_rank(job, world, rank, first, last, places);
}

/* One epoch: all samples, or as many as fill whole batches, none twice; places without one only at
 * the end. */
static void check_epoch(const struct job *job, const uint32_t *places, uint64_t steps)
{
	static unsigned char seen[SAMPLES];
	uint64_t want = job->complete ? job->count : job->count / batch_of(job) * batch_of(job);
	memset(seen, 0, job->count);
	for (uint64_t i = 0; i < steps * batch_of(job); i++) {
		if (i >= want) {
			assert_true(places[i] == NOTHING);
			continue;
		}
		assert_true(places[i] < job->count);
		assert_int_equal(seen[places[i]]++, 0);
		if (!job->shuffle)
			assert_int_equal(places[i], i);
	}
}

static uint64_t epoch_steps(const struct job *job)
{
	struct sampler sampler = sampler_of(job);
	return sampler_epoch_steps(&sampler);
}

/* The order of all epochs, malloc'ed: what a world of one reads. */
static uint32_t *whole_order(const struct job *job)
{
	uint64_t steps = epoch_steps(job);
	uint32_t *order = malloc(EPOCHS * steps * batch_of(job) * sizeof *order);
	assert_non_null(order);
	read_steps(job, 1, 1, EPOCHS * steps, order);
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
		check_epoch(job, order + epoch * steps * batch_of(job), steps);
	return order;
}

/* A world takes over after step `done` and goes on to step `last`. */
static void check_segment(const struct job *job, int world, uint64_t done, uint64_t last,
	const uint32_t *order, uint32_t *places)
{
	size_t count = (last - done) * batch_of(job);
	memset(places, 0xee, count * sizeof *places);
	read_steps(job, world, done + 1, last, places);
	assert_memory_equal(places, order + done * batch_of(job), count * sizeof *places);
}

/* Any chain of worlds is made of such segments, so this is every chain of these jobs. */
static void check_every_resume(const struct job *job)
{
	uint64_t steps = EPOCHS * epoch_steps(job);
	if (steps == 0)
		return;
	uint32_t *order = whole_order(job), *places = malloc(steps * batch_of(job) * sizeof *places);
	for (int world = 1; world <= job->slots; world++)
		for (uint64_t done = 0; done < steps; done++)
			check_segment(job, world, done, steps, order, places);
	free(order);
	free(places);
}

static void small_jobs_resume_anywhere_with_any_world(void **state)
{
	struct job job;
	for (job.count = 1; job.count <= 12; job.count++)
		for (job.slots = 1; job.slots <= 5; job.slots++)
			for (int variant = 0; variant < 16; variant++) {
				job.microbatch = 1 + (variant & 1);
				job.slot_microbatches = 1 + (variant >> 1 & 1);
				job.complete = variant & 4;
				job.shuffle = variant & 8;
				check_every_resume(&job);
			}
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (*state >> 33) % below;
}

/* One run: the worlds and the moments at which they follow one another are drawn. */
static void check_chain(const struct job *job, uint64_t *random)
{
	uint64_t steps = EPOCHS * epoch_steps(job), done = 0;
	if (steps == 0)
		return;
	uint32_t *order = whole_order(job), *places = malloc(steps * batch_of(job) * sizeof *places);
	while (done < steps) {
		uint64_t last = done + 1 + draw(random, steps / 3 + 1);
		last = last < steps ? last : steps;
		check_segment(job, 1 + (int)draw(random, (uint64_t)job->slots), done, last, order, places);
		done = last;
	}
	free(order);
	free(places);
}

static void large_jobs_over_chains_of_worlds(void **state)
{
	uint64_t random = 20;
	for (int i = 0; i < 16; i++) {
		const struct job job = { .count = 1 + draw(&random, SAMPLES),
			.microbatch = 1 + (int)draw(&random, 16),
			.slot_microbatches = 1 + (int)draw(&random, 5),
			.slots = 1 + (int)draw(&random, 48),
			.complete = draw(&random, 4) > 0,
			.shuffle = draw(&random, 4) > 0 };
		check_chain(&job, &random);
	}
}

static void counted_samples_of_a_step(void **state)
{
	const struct job dropping = { .count = 101,
		.microbatch = 3,
		.slot_microbatches = 1,
		.slots = 8,
		.shuffle = true };
	struct sampler whole = sampler_of(&dropping), padded = whole;
	padded.complete = true;
	assert_int_equal(feed_step_samples(&whole, 5), 24);
	assert_int_equal(feed_step_samples(&padded, 4), 24);
	assert_int_equal(feed_step_samples(&padded, 5), 101 % 24);
	assert_int_equal(feed_step_samples(&padded, 6), 24);
}

static void hash_tells_the_samples_of_a_step(void **state)
{
	const struct job job = { .count = 101,
		.microbatch = 3,
		.slot_microbatches = 1,
		.slots = 1,
		.shuffle = true };
	const struct feed_plan plan = plan_of(&job, 1, 0, 1, 9);
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

/* Ranks without a sample in the last, padded step of an epoch have all read the same: nothing. */
static void hash_of_no_sample_is_none(void **state)
{
	const struct job job = { .count = 9,
		.microbatch = 3,
		.slot_microbatches = 1,
		.slots = 8,
		.complete = true,
		.shuffle = true };
	uint64_t hashes[4];
	for (int rank = 0; rank < 4; rank++) {
		const struct feed_plan plan = plan_of(&job, 4, rank, 1, 2);
		struct feed *feed = feed_start(dataset, &plan, NULL);
		assert_non_null(feed_next(feed, NULL));
		assert_non_null(feed_next(feed, NULL));
		hashes[rank] = feed_hash(feed);
		feed_stop(feed);
	}
	assert_int_not_equal(hashes[0], 0);
	assert_int_not_equal(hashes[1], 0);
	assert_int_not_equal(hashes[0], hashes[1]);
	assert_int_equal(hashes[2], 0);
	assert_int_equal(hashes[3], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_jobs_resume_anywhere_with_any_world),
		cmocka_unit_test(large_jobs_over_chains_of_worlds),
		cmocka_unit_test(counted_samples_of_a_step),
		cmocka_unit_test(hash_tells_the_samples_of_a_step),
		cmocka_unit_test(hash_of_no_sample_is_none),
	};
	return cmocka_run_group_tests(tests, open_samples, close_samples);
}
