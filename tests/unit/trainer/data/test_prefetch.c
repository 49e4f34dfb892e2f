/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch: batches come in the order of their lists, an error comes in its place, and a stop is
 * clean at any time. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "common/bytes.h"
#include "tests/unit/files.h"
#include "trainer/data/dataset.h"

#define POSITIONS 4
#define TOKENS 4001
#define BAD_SAMPLE 500 /* holds token 9999 */
#define VOCABULARY 5000

static struct dataset *open_data(void)
{
	static unsigned char bytes[2 * TOKENS];
	struct err err;
	for (int i = 0; i < TOKENS; i++)
		bytes_put_le16(bytes + 2 * i, (uint16_t)i);
	bytes_put_le16(bytes + 2 * (BAD_SAMPLE * POSITIONS + 1), 9999);
	struct dataset *data =
		dataset_open_tokens(files_write("t.u16", bytes, sizeof bytes), POSITIONS, &err);
	assert_non_null(data);
	return data;
}

static uint64_t nth_sample(int n)
{
	return (uint64_t)n * 7 % BAD_SAMPLE;
}

static void push_nth(struct prefetch *prefetch, int n)
{
	uint64_t samples[2] = { nth_sample(2 * n), nth_sample(2 * n + 1) };
	assert_int_equal(prefetch_push(prefetch, samples, NULL), 0);
	samples[0] = samples[1] = 0; /* the list was copied */
}

static void batches_come_in_order(void **state)
{
	struct err err;
	struct dataset *data = open_data();
	for (int depth = 1; depth <= 5; depth++) {
		struct prefetch *prefetch = prefetch_start(data, 2, VOCABULARY, depth, &err);
		assert_non_null(prefetch);
		int pushed = 0;
		for (int n = 0; n < 300; n++) {
			while (prefetch_pending(prefetch) < depth)
				push_nth(prefetch, pushed++);
			const struct batch *batch = prefetch_next(prefetch, &err);
			assert_non_null(batch);
			/* A push right after the hand-over must not touch this batch. */
			push_nth(prefetch, pushed++);
			for (int row = 0; row < 2; row++)
				for (int i = 0; i < POSITIONS; i++)
					assert_int_equal(batch->tokens[row * POSITIONS + i],
						nth_sample(2 * n + row) * POSITIONS + (uint64_t)i);
		}
		prefetch_stop(prefetch);
	}
	dataset_close(data);
}

static void error_comes_in_its_place(void **state)
{
	struct err err;
	struct dataset *data = open_data();
	struct prefetch *prefetch = prefetch_start(data, 1, VOCABULARY, 4, &err);
	const uint64_t samples[4] = { 1, BAD_SAMPLE, 2, 3 };
	for (int i = 0; i < 4; i++)
		assert_int_equal(prefetch_push(prefetch, &samples[i], &err), 0);
	assert_non_null(prefetch_next(prefetch, &err));
	assert_null(prefetch_next(prefetch, &err));
	assert_int_equal(err.status, EXIT_DATA);
	assert_non_null(strstr(err.text, "token 9999 of sample 500 (place 1)"));
	const struct batch *batch = prefetch_next(prefetch, &err);
	assert_non_null(batch);
	assert_int_equal(batch->tokens[0], 2 * POSITIONS);
	assert_int_equal(prefetch_pending(prefetch), 1);
	prefetch_stop(prefetch);
	dataset_close(data);
}

static void neither_side_waits_for_ever(void **state)
{
	struct err err;
	struct dataset *data = open_data();
	struct prefetch *prefetch = prefetch_start(data, 2, VOCABULARY, 2, &err);
	assert_null(prefetch_next(prefetch, &err));
	assert_non_null(strstr(err.text, "no batch was asked for"));
	push_nth(prefetch, 0);
	push_nth(prefetch, 1);
	assert_int_equal(prefetch_push(prefetch, (uint64_t[]) { 0, 1 }, &err), -1);
	assert_int_equal(prefetch_pending(prefetch), 2);
	assert_non_null(prefetch_next(prefetch, &err));
	push_nth(prefetch, 2);
	prefetch_stop(prefetch);
	dataset_close(data);
	prefetch_stop(NULL);
}

/* The data set outlives the call that closes it for as long as the thread reads. */
static void stops_at_any_moment(void **state)
{
	struct err err;
	for (int n = 0; n < 200; n++) {
		struct dataset *data = open_data();
		struct prefetch *prefetch = prefetch_start(data, 2, VOCABULARY, 3, &err);
		for (int i = 0; i < n % 4; i++)
			push_nth(prefetch, i);
		if (n % 2)
			dataset_close(data);
		prefetch_stop(prefetch);
		if (n % 2 == 0)
			dataset_close(data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_come_in_order),
		cmocka_unit_test(error_comes_in_its_place),
		cmocka_unit_test(neither_side_waits_for_ever),
		cmocka_unit_test(stops_at_any_moment),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
