/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_pool: what was given away stays, byte for byte, the state of its step while training goes
 * on elsewhere with the bits of an update in place; and what is not saved is there once. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/trainer/state/odd_table.h"
#include "trainer/state/optimizer.h"
#include "trainer/state/buffer_pool.h"

#define STEPS 12

static const struct optimizer_config schedule = { .learning_rate = 0.1,
	.minimal_learning_rate = 0.01,
	.steps = STEPS,
	.beta1 = 0.9,
	.beta2 = 0.95,
	.epsilon = 1e-8,
	.weight_decay = 0.1,
	.clip = 1 };

/* One training with gradients that are a function of the step; NAN in those that are masked. */
struct training {
	struct tensor_table table;
	struct ops *ops;
	struct state state;
	float *grads;
};

static void begin(struct training *training)
{
	struct err err;
	*training = (struct training) { 0 };
	odd_table_make(&training->table);
	training->ops = ops_cpu_create(false, &err);
	assert_non_null(training->ops);
	assert_int_equal(state_alloc_saved(&training->state, training->ops, &training->table, NULL, 0,
						 &err),
		0);
	state_init(&training->state, 7);
	training->grads = calloc(training->table.elements, sizeof *training->grads);
}

static void end(struct training *training)
{
	state_free(&training->state);
	training->ops->destroy(training->ops);
	tensor_table_clear(&training->table);
	free(training->grads);
}

static void step(struct training *training, bool masked)
{
	struct state *state = &training->state;
	uint64_t number = ++state->step;
	for (size_t i = 0; i < training->table.elements; i++)
		training->grads[i] = (float)((i * number * 40503 & 0xffff) - 32768.0) / 32768;
	optimizer_begin(&schedule, number, 1, training->ops->params);
	bool changes = optimizer_clip(&schedule, 1, masked ? (double)NAN : 2, training->ops->params);
	assert_int_equal(changes, !masked);
	state_update(state, training->grads, changes);
}

/* The three arenas, one after the other. */
static float *copy_of(const struct state *state)
{
	size_t elements = state->tensors->elements;
	float *copy = malloc(3 * elements * sizeof *copy);
	memcpy(copy, state->weights, elements * sizeof *copy);
	memcpy(copy + elements, state->m, elements * sizeof *copy);
	memcpy(copy + 2 * elements, state->v, elements * sizeof *copy);
	return copy;
}

/* As assert_memory_equal(), which looks at one byte after the other. */
static void assert_equal(const void *one, const void *other, size_t bytes)
{
	if (memcmp(one, other, bytes) != 0)
		assert_memory_equal(one, other, bytes);
}

static void assert_same_state(const struct training *one, const struct training *other)
{
	size_t bytes = one->table.elements * sizeof(float);
	assert_equal(one->state.weights, other->state.weights, bytes);
	assert_equal(one->state.m, other->state.m, bytes);
	assert_equal(one->state.v, other->state.v, bytes);
}

/* What of a buffer is the part's is that of the copy. */
static void assert_own(const struct layout *layout, const float *buffer, const float *copy)
{
	for (size_t s = 0; s < SNAPSHOT_STATES; s++) {
		size_t at = s * layout->table->elements + layout->first;
		assert_equal(buffer + at, copy + at, (layout->end - layout->first) * sizeof(float));
	}
}

/* A save in every third step, the buffer before the last being free again by then; masked steps,
 * right after a save and not. */
static void train_beside(int part, int writers, int sets)
{
	struct training plain, turning;
	struct buffer_pool pool;
	struct layout layout;
	struct err err;
	float *given[SNAPSHOT_BUFFERS] = { NULL };
	begin(&plain);
	begin(&turning);
	assert_int_equal(layout_make(&layout, &turning.table, part, writers, NULL, 0, &err), 0);
	if (buffer_pool_start(&pool, &turning.state, &layout, sets, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(buffer_pool_live(&pool), 0);
	assert_same_state(&turning, &plain);
	for (int i = 0; i < STEPS; i++) {
		bool masked = i == 4 || i == 6;
		int live = buffer_pool_live(&pool), next = (live + 1) % sets;
		if (i % 3 == 1) {
			free(given[live]);
			given[live] = copy_of(&plain.state);
			free(given[next]);
			given[next] = NULL;
			buffer_pool_switch(&pool, next);
		}
		step(&plain, masked);
		step(&turning, masked);
		assert_same_state(&turning, &plain);
		assert_int_equal(buffer_pool_live(&pool),
			i % 3 == 1 && !masked ? next
				: i == 5          ? next
								  : live);
		for (int buffer = 0; buffer < sets; buffer++)
			if (given[buffer])
				assert_own(&layout, turning.state.memory.base[buffer], given[buffer]);
	}
	buffer_pool_stop(&pool);
	assert_null(turning.state.weights);
	for (int buffer = 0; buffer < sets; buffer++)
		free(given[buffer]);
	layout_clear(&layout);
	end(&plain);
	end(&turning);
}

static void what_was_given_away_stays(void **unused)
{
	for (int writers = 1; writers <= 5; writers++)
		for (int part = 0; part < writers; part++)
			for (int sets = 2; sets <= SNAPSHOT_BUFFERS; sets++)
				train_beside(part, writers, sets);
}

/* Bytes that the memory file has in memory. */
static size_t resident(int fd)
{
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	return (size_t)st.st_blocks * 512;
}

static void the_rest_is_there_once(void **unused)
{
	struct training training;
	struct buffer_pool pool;
	struct layout layout;
	struct err err;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	begin(&training);
	assert_int_equal(layout_make(&layout, &training.table, 1, 3, NULL, 0, &err), 0);
	assert_int_equal(buffer_pool_start(&pool, &training.state, &layout, 3, &err), 0);
	for (int i = 0; i < 4; i++) {
		buffer_pool_switch(&pool, (buffer_pool_live(&pool) + 1) % 3);
		step(&training, false);
	}
	assert_true(
		layout_own_bytes(&layout) > 0 && layout_own_bytes(&layout) < layout_bytes(&layout) - 50000);
	assert_in_range(resident(training.state.memory.fd[0]), layout_bytes(&layout),
		layout_bytes(&layout) + page);
	for (int buffer = 1; buffer < 3; buffer++)
		assert_in_range(resident(training.state.memory.fd[buffer]), layout_own_bytes(&layout),
			layout_own_bytes(&layout) + 2 * SNAPSHOT_STATES * page);
	buffer_pool_stop(&pool);
	buffer_pool_stop(&pool);
	layout_clear(&layout);
	end(&training);
}

static void a_third_takes_no_memory_until_it_is_used(void **unused)
{
	struct training training;
	struct buffer_pool pool;
	struct layout layout;
	struct err err;
	begin(&training);
	assert_int_equal(layout_make(&layout, &training.table, 0, 1, NULL, 0, &err), 0);
	assert_int_equal(buffer_pool_start(&pool, &training.state, &layout, 3, &err), 0);
	const int *files = training.state.memory.fd;
	for (int i = 0; i < 4; i++) {
		buffer_pool_switch(&pool, !buffer_pool_live(&pool));
		step(&training, false);
		assert_true(buffer_pool_is_there(&pool, 1) && !buffer_pool_is_there(&pool, 2));
		assert_int_equal(resident(files[1]), training.state.memory.bytes);
		assert_int_equal(resident(files[2]), 0);
	}
	buffer_pool_switch(&pool, 2);
	assert_true(buffer_pool_is_there(&pool, 2));
	assert_int_equal(resident(files[2]), training.state.memory.bytes);
	buffer_pool_stop(&pool);
	layout_clear(&layout);
	end(&training);
}

/* With shards: the moments of others are never there, and the own ones are those of a whole state.
 */
static void moments_of_others_are_not_there(void **unused)
{
	struct training plain, sharded;
	struct buffer_pool pool;
	struct layout layout;
	struct err err;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	begin(&plain);
	begin(&sharded);
	size_t big = sharded.table.rows[3].offset, end_at = sharded.table.rows[4].offset;
	const struct zero_shard shards[] = { { 0, 0, big + 65536 },
		{ 0, big + 131072, sharded.table.elements }, { 1, big + 65536, big + 131072 } };
	assert_true(big + 131072 < end_at);
	state_free(&sharded.state);
	assert_int_equal(state_alloc_saved(&sharded.state, sharded.ops, &sharded.table, shards + 2, 1,
						 &err),
		0);
	state_init(&sharded.state, 7);
	assert_int_equal(state_moment_bytes(&sharded.state), 2 * 65536 * sizeof(float));
	assert_int_equal(layout_make(&layout, &sharded.table, 1, 2, shards, 3, &err), 0);
	assert_int_equal(buffer_pool_start(&pool, &sharded.state, &layout, 3, &err), 0);
	for (int i = 0; i < 4; i++) {
		buffer_pool_switch(&pool, (buffer_pool_live(&pool) + 1) % 3);
		step(&plain, false);
		step(&sharded, false);
		/* what the others would send */
		memcpy(sharded.state.weights, plain.state.weights, (big + 65536) * sizeof(float));
		memcpy(sharded.state.weights + big + 131072, plain.state.weights + big + 131072,
			(sharded.table.elements - big - 131072) * sizeof(float));
		size_t at = big + 65536;
		assert_equal(sharded.state.weights, plain.state.weights,
			sharded.table.elements * sizeof(float));
		assert_equal(sharded.state.m + at, plain.state.m + at, 65536 * sizeof(float));
		assert_equal(sharded.state.v + at, plain.state.v + at, 65536 * sizeof(float));
	}
	size_t weights = sharded.table.elements * sizeof(float), moments = 2 * 65536 * sizeof(float);
	assert_in_range(resident(sharded.state.memory.fd[0]), weights + moments,
		weights + moments + 8 * page);
	for (int buffer = 1; buffer < 3; buffer++)
		assert_in_range(resident(sharded.state.memory.fd[buffer]), layout_own_bytes(&layout),
			layout_own_bytes(&layout) + 8 * page);
	buffer_pool_stop(&pool);
	layout_clear(&layout);
	end(&plain);
	end(&sharded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_given_away_stays),
		cmocka_unit_test(the_rest_is_there_once),
		cmocka_unit_test(a_third_takes_no_memory_until_it_is_used),
		cmocka_unit_test(moments_of_others_are_not_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
