/* SPDX-License-Identifier: Apache-2.0 */
/* muster_word among several processes: a flag of any rank is known to all at the same call, the
 * next one; and a rank that is gone or stands still is named. */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/ranks_fixture.h"

#define STEPS 50

/* Trains until a flag is seen: 100 + the number of steps then, or a status. */
static int train(struct muster *muster, int rank, int flagging, int after)
{
	uint64_t all;
	int who, status;
	for (int step = 1; step <= STEPS; step++) {
		usleep((useconds_t)(rank * 300));
		status = muster_word(muster, rank == flagging && step == after ? 4 : 0, &all, &who, 0);
		if (status)
			return status;
		if (all)
			return all == 4 && who == flagging ? 100 + step : -2;
	}
	return 100;
}

static int stop_together(struct muster *muster, int rank)
{
	uint64_t all;
	int who, status = muster_word_begin(muster, HANG_SECONDS);
	int steps = status ? status : train(muster, rank, 2, 7);
	status = status ? status : muster_word_end(muster, &all, &who, 0);
	if (status || all || who != -1)
		return -3;
	/* Again, with a flag in the last word. */
	if (muster_word_begin(muster, HANG_SECONDS) || muster_word(muster, 0, &all, &who, 0)
		|| muster_word(muster, rank == 3, &all, &who, 0) || all
		|| muster_word_end(muster, &all, &who, 0) || all != 1 || who != 3)
		return -4;
	return steps;
}

static void a_flag_is_known_to_all_at_the_next_call(void **state)
{
	ranks_run(stop_together, false);
	ranks_assert_each(108, "", -1);
}

static int one_dies(struct muster *muster, int rank)
{
	int status = muster_word_begin(muster, HANG_SECONDS);
	if (status == 0 && rank == 1) {
		uint64_t all;
		int who;
		for (int step = 0; step < 3; step++)
			muster_word(muster, 0, &all, &who, 0);
		raise(SIGKILL);
	}
	return status ? status : train(muster, rank, -1, 0);
}

static int one_dies_at_once(struct muster *muster, int rank)
{
	int status = muster_word_begin(muster, HANG_SECONDS);
	if (status == 0 && rank == 1)
		raise(SIGKILL);
	return status ? status : train(muster, rank, -1, 0);
}

static int one_stands_still(struct muster *muster, int rank)
{
	uint64_t all;
	int who, status = muster_word_begin(muster, HANG_SECONDS);
	for (int step = 0; status == 0 && step < 5; step++) {
		if (rank == 2 && step == 3)
			return muster_fence(muster, HANG_SECONDS) ? MUSTER_FAULT : MUSTER_LOST;
		status = muster_word(muster, 0, &all, &who, 4);
	}
	muster_fence(muster, HANG_SECONDS);
	return status;
}

static void who_is_gone_or_stands_still_is_named(void **state)
{
	for (int times = 0; times < 20; times++) {
		ranks_run(times > 0 ? one_dies_at_once : one_dies, false);
		ranks_assert_each(MUSTER_LOST, "word: rank 1 (on ", 1);
	}
	ranks_run(one_stands_still, false);
	ranks_assert(MUSTER_LOST, "word: no word 4 from rank 2 (on ", 2);
}

/* Between two words rank 0 gets what each rank has. */
static int gather(struct muster *muster, int rank)
{
	uint64_t all;
	int who, status = muster_word_begin(muster, HANG_SECONDS);
	static char mine[3 * 50000];
	void *whole;
	size_t sizes[RANKS], at = 0;
	memset(mine, 'a' + rank, sizeof mine);
	for (int step = 0; status == 0 && step < 5; step++) {
		status = muster_word(muster, 0, &all, &who, 0);
		if (status == 0)
			status = muster_word_gather(muster, mine, (size_t)(rank * 50000), &whole,
				rank == 0 ? sizes : NULL, 0);
		if (status || (rank != 0) != (whole == NULL))
			return status ? status : -2;
		at = 0;
		for (int r = 0; r < RANKS && rank == 0; r++) {
			for (size_t i = 0; i < sizes[r]; i++)
				if (sizes[r] != (size_t)r * 50000 || ((char *)whole)[at + i] != 'a' + r)
					return -3;
			at += sizes[r];
		}
		muster_free(whole);
	}
	if (rank == 0 && at != 6 * (size_t)50000)
		return -4;
	return muster_word_end(muster, &all, &who, 0);
}

static int one_dies_before_it_gives(struct muster *muster, int rank)
{
	void *whole;
	size_t sizes[RANKS];
	int status = muster_word_begin(muster, HANG_SECONDS);
	if (status == 0 && rank == 2)
		raise(SIGKILL);
	return status ? status : muster_word_gather(muster, "x", 1, &whole, sizes, 0);
}

static void rank_0_gets_what_each_rank_gives(void **state)
{
	ranks_run(gather, false);
	ranks_assert_each(MUSTER_OK, "", -1);
	ranks_run(one_dies_before_it_gives, false);
	ranks_assert_each(MUSTER_LOST, "word: rank 2 (on ", 2);
}

static int refuse_all(struct muster *muster, int rank)
{
	uint64_t all;
	int who;
	void *data;
	size_t sizes[RANKS];
	(void)rank;
	RANKS_REFUSED(muster_word_begin(NULL, 0), "muster_open");
	RANKS_REFUSED(muster_word_begin(muster, -1), "couldn't use a timeout of");
	RANKS_REFUSED(muster_word(muster, 0, &all, &who, 0), "call muster_word_begin first");
	RANKS_REFUSED(muster_word_gather(muster, "x", 1, &data, sizes, 0), "muster_word_begin first");
	RANKS_REFUSED(muster_word_end(muster, &all, &who, 0), "call muster_word_begin first");
	if (muster_word_begin(muster, 0))
		return __LINE__;
	RANKS_REFUSED(muster_word_begin(muster, 0), "it has begun already");
	RANKS_REFUSED(muster_word(NULL, 0, &all, &who, 0), "muster_open");
	RANKS_REFUSED(muster_word(muster, 0, NULL, &who, 0), "NULL as the place for the flags");
	RANKS_REFUSED(muster_word(muster, 0, &all, NULL, 0), "NULL as the place for the rank");
	RANKS_REFUSED(muster_word_end(muster, NULL, &who, 0), "NULL as the place for the flags");
	RANKS_REFUSED(muster_word_gather(muster, "x", 1, NULL, NULL, 0), "what is gathered");
	RANKS_REFUSED(muster_word_gather(muster, NULL, 1, &data, sizes, 0), "what this rank gives");
	RANKS_REFUSED(muster_word_gather(muster, "x", 17 << 20, &data, sizes, 0), "at most 16 MiB");
	/* None of these was a word. */
	if (muster_word(muster, 0, &all, &who, 0) || muster_word_end(muster, &all, &who, 0))
		return __LINE__;
	return MUSTER_OK;
}

static void bad_arguments_have_a_line(void **state)
{
	ranks_run(refuse_all, false);
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(ranks_outcomes[rank].status, MUSTER_OK);
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : ranks_setup(files_path("."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flag_is_known_to_all_at_the_next_call),
		cmocka_unit_test(who_is_gone_or_stands_still_is_named),
		cmocka_unit_test(rank_0_gets_what_each_rank_gives),
		cmocka_unit_test(bad_arguments_have_a_line),
	};
	return cmocka_run_group_tests(tests, begin, files_teardown);
}
