/* SPDX-License-Identifier: Apache-2.0 */
/* libmuster's small collectives among several processes: what they carry, and that a rank that
 * fails, is elsewhere or gone is told by all others in one line. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/ranks_fixture.h"

#define MOST 65000

/* ---- what they carry ---- */

static int carry(struct muster *muster, int rank)
{
	static unsigned char all[RANKS * MOST];
	int32_t numbers[RANKS], root = rank == 2 ? 77 : -1;
	static const size_t sizes[] = { 0, 1, 4096, MOST };
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		size_t size = sizes[i];
		unsigned char *mine = all + (size_t)rank * size; /* its place in the result */
		memset(mine, 'a' + rank, size);
		if (muster_allgather(muster, mine, all, size, 0))
			return 1;
		for (size_t at = 0; at < RANKS * size; at++)
			if (all[at] != 'a' + at / size)
				return 2;
	}
	if (muster_agree(muster, MUSTER_OK, NULL, 0)
		|| muster_broadcast(muster, 2, &root, sizeof root, 0))
		return 3;
	root += rank;
	if (muster_allgather(muster, &root, numbers, sizeof root, 0))
		return 4;
	return numbers[0] == 77 && numbers[1] == 78 && numbers[3] == 80 ? 0 : 5;
}

static void every_rank_gets_what_the_others_give(void **state)
{
	ranks_run(carry, false);
	ranks_assert(MUSTER_OK, "", -1);
}

/* ---- failures ---- */

/* Each rank's status, and where a rank that has none stands. */
static struct {
	int statuses[RANKS];
	const char *why;
	enum { IN_AGREE, IN_ALLGATHER, IN_BROADCAST, PLACES } place;
} failing;

static int fail_together(struct muster *muster, int rank)
{
	int64_t mine = rank, all[RANKS];
	char why[40];
	if (failing.statuses[rank] || failing.place == IN_AGREE) {
		snprintf(why, sizeof why, "%s of %d", failing.why ? failing.why : "", rank);
		return muster_agree(muster, failing.statuses[rank], failing.why ? why : NULL, 0);
	}
	if (failing.place == IN_ALLGATHER)
		return muster_allgather(muster, &mine, all, sizeof mine, 0);
	return muster_broadcast(muster, 1, &mine, sizeof mine, 0);
}

static void a_failure_is_that_of_all_wherever_they_stand(void **state)
{
	failing.why = "the disk";
	memset(failing.statuses, 0, sizeof failing.statuses);
	failing.statuses[2] = MUSTER_DATA;
	for (failing.place = IN_AGREE; failing.place < PLACES; failing.place++) {
		ranks_run(fail_together, false);
		ranks_assert(MUSTER_DATA, "): the disk of 2", -1);
		assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 2 (on "), ranks_outcomes[0].text);
	}
}

static void the_cause_comes_before_the_consequences(void **state)
{
	static const int lost[RANKS] = { MUSTER_REQUEUE, MUSTER_LOST, 0, MUSTER_LOST };
	failing.place = IN_AGREE;
	failing.why = "the reason";
	memcpy(failing.statuses, lost, sizeof lost);
	ranks_run(fail_together, false);
	ranks_assert(MUSTER_LOST, "): the reason of 1", -1);
	failing.statuses[3] = MUSTER_FAULT;
	ranks_run(fail_together, false);
	ranks_assert(MUSTER_FAULT, "): the reason of 3", -1);
	failing.statuses[1] = failing.statuses[3] = 0;
	failing.why = NULL; /* none was said, and none is known */
	ranks_run(fail_together, false);
	ranks_assert(MUSTER_REQUEUE, "): it gave up with status 75", -1);
}

static int lose_rank_1(struct muster *muster, int rank)
{
	return rank == 1 ? raise(SIGKILL) : muster_agree(muster, MUSTER_OK, NULL, 0.5);
}

/* The first whose time is up tells those who still wait. */
static void a_rank_that_is_gone_is_named(void **state)
{
	ranks_run(lose_rank_1, false);
	ranks_assert_each(MUSTER_LOST, "couldn't meet 1 of 4 ranks within 0.5 s: rank 1 (on ", 1);
}

static int leave_as_rank_1(struct muster *muster, int rank)
{
	return rank == 1 ? MUSTER_LOST : muster_agree(muster, MUSTER_OK, NULL, HANG_SECONDS);
}

static void a_rank_that_ends_in_error_is_not_waited_for(void **state)
{
	ranks_run(leave_as_rank_1, false);
	ranks_assert(MUSTER_LOST, "rendezvous: rank 1 gave up: it has ended in error", 1);
}

/* ---- what can't be ---- */

static int stand_elsewhere(struct muster *muster, int rank)
{
	int64_t mine = rank, all[RANKS];
	return rank == 1 ? muster_broadcast(muster, 0, &mine, sizeof mine, 0)
					 : muster_allgather(muster, &mine, all, sizeof mine, 0);
}

static int give_another_size(struct muster *muster, int rank)
{
	int64_t mine = rank, all[RANKS];
	return muster_allgather(muster, &mine, all, rank == 3 ? 4 : 8, 0);
}

static void ranks_that_call_different_things_are_told_so(void **state)
{
	ranks_run(stand_elsewhere, false);
	ranks_assert(MUSTER_USAGE, "is in muster_broadcast from rank 0, rank 0 (on ", -1);
	ranks_run(give_another_size, false);
	ranks_assert(MUSTER_USAGE, "couldn't take the 4 bytes of rank 3 (on ", 3);
	assert_int_equal(ranks_outcomes[3].status, MUSTER_USAGE);
	assert_non_null(strstr(ranks_outcomes[3].text, "couldn't take the 8 bytes of rank 0 (on "));
}

/* A call that must be refused, with those words. */
static int refuse_all(struct muster *muster, int rank)
{
	char data[8] = "";
	const double bad[] = { -1, NAN, INFINITY, 1e300 };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		RANKS_REFUSED(muster_agree(muster, 0, NULL, bad[i]), "couldn't use a timeout of");
		RANKS_REFUSED(muster_allgather(muster, data, data, 1, bad[i]), "couldn't use a timeout of");
		RANKS_REFUSED(muster_broadcast(muster, 0, data, 1, bad[i]), "couldn't use a timeout of");
	}
	RANKS_REFUSED(muster_agree(NULL, 0, NULL, 0), "muster_open");
	RANKS_REFUSED(muster_allgather(NULL, data, data, 1, 0), "muster_open");
	RANKS_REFUSED(muster_broadcast(NULL, 0, data, 1, 0), "muster_open");
	RANKS_REFUSED(muster_allgather(muster, NULL, data, 1, 0), "1 bytes at NULL");
	RANKS_REFUSED(muster_allgather(muster, data, NULL, 1, 0), "1 bytes at NULL");
	RANKS_REFUSED(muster_broadcast(muster, 0, NULL, 1, 0), "1 bytes at NULL");
	RANKS_REFUSED(muster_allgather(muster, data, data, MOST + 1, 0), "at most 65000");
	RANKS_REFUSED(muster_broadcast(muster, 0, data, MOST + 1, 0), "at most 65000");
	RANKS_REFUSED(muster_broadcast(muster, RANKS, data, 1, 0), "the world has 4");
	RANKS_REFUSED(muster_broadcast(muster, -1, data, 1, 0), "the world has 4");
	return muster_agree(muster, MUSTER_OK, NULL, 0); /* nothing of it has reached the others */
}

static void bad_arguments_have_a_line_and_reach_nobody(void **state)
{
	ranks_run(refuse_all, false);
	ranks_assert(MUSTER_OK, "", -1);
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : ranks_setup(files_path("."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_rank_gets_what_the_others_give),
		cmocka_unit_test(a_failure_is_that_of_all_wherever_they_stand),
		cmocka_unit_test(the_cause_comes_before_the_consequences),
		cmocka_unit_test(a_rank_that_is_gone_is_named),
		cmocka_unit_test(a_rank_that_ends_in_error_is_not_waited_for),
		cmocka_unit_test(ranks_that_call_different_things_are_told_so),
		cmocka_unit_test(bad_arguments_have_a_line_and_reach_nobody),
	};
	return cmocka_run_group_tests(tests, begin, files_teardown);
}
