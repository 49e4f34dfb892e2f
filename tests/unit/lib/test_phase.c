/* SPDX-License-Identifier: Apache-2.0 */
/* The flight recorder of a program with libmuster: where each rank stood is known after one was
 * killed and the others have lost it, and nothing of it is left after an end in order. */
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
#include "telemetry/flight_files.h"

static int resume(struct muster *muster, struct muster_ckpt **ckpt)
{
	struct muster_saved *saved;
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.timeout = HANG_SECONDS,
		.dir = files_path("run") };
	int status = muster_ckpt_resume_state(muster, &plan, HANG_SECONDS, ckpt, &saved);
	muster_saved_close(saved);
	return status ? status : muster_word_begin(muster, HANG_SECONDS);
}

static int save(struct muster_ckpt *ckpt, int64_t step)
{
	const struct muster_state state = { .size = sizeof state, .values = "{}" };
	return muster_ckpt_save_state(ckpt, step, &state);
}

static int one_dies(struct muster *muster, int rank)
{
	static const enum muster_phase phases[RANKS] = { MUSTER_PHASE_DATA, MUSTER_PHASE_BACKWARD,
		MUSTER_PHASE_UPDATE, MUSTER_PHASE_FORWARD };
	struct muster_ckpt *ckpt;
	uint64_t all;
	int who, status = resume(muster, &ckpt);
	if (status)
		return status;
	muster_phase(muster, phases[rank], 3);
	/* A save, and what is no phase, change nothing. */
	status = save(ckpt, 2);
	muster_phase(NULL, MUSTER_PHASE_DATA, 3);
	muster_phase(muster, (enum muster_phase)1, 4);
	muster_phase(muster, MUSTER_PHASE_STEP, 0);
	if (status || muster_fence(muster, HANG_SECONDS))
		return status ? status : MUSTER_FAULT;
	if (rank == 1)
		raise(SIGKILL);
	for (int i = 0; rank == 2 && i < 2 && status == 0; i++)
		status = muster_word(muster, 0, &all, &who, HANG_SECONDS);
	return rank == 2 && status != MUSTER_LOST ? MUSTER_FAULT : MUSTER_LOST;
}

static void it_is_known_where_the_ranks_stood(void **state)
{
	static const char *const words[RANKS] = { "taking data for step 3",
		"in the backward pass of step 3", "waiting for the other ranks after step 3",
		"in the forward pass of step 3" };
	struct flight_list list;
	struct err err;
	ranks_run(one_dies, false);
	ranks_assert_each(MUSTER_LOST, "", 1);
	assert_int_equal(flight_files_read(files_path("run"), &list, &err), 0);
	assert_int_equal(list.count, RANKS);
	for (int rank = 0; rank < RANKS; rank++) {
		char told[160];
		flight_words(&list.views[rank], told, sizeof told);
		assert_int_equal(list.views[rank].rank, rank);
		assert_string_equal(told, words[rank]);
	}
	flight_list_clear(&list);
}

static int all_finish(struct muster *muster, int rank)
{
	struct muster_ckpt *ckpt;
	int status = resume(muster, &ckpt);
	if (status == MUSTER_OK)
		muster_phase(muster, MUSTER_PHASE_STEP, 4);
	(void)rank;
	return muster_end(muster, ckpt, NULL, status, HANG_SECONDS);
}

static void an_end_in_order_leaves_no_record(void **state)
{
	ranks_run(all_finish, true);
	ranks_assert_each(MUSTER_OK, "", -1);
	assert_int_equal(access(files_path("run/standing"), F_OK), -1);
	/* The attempt before keeps its place. */
	assert_int_equal(access(files_path("run/standing-before/rank-00001"), F_OK), 0);
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : ranks_setup(files_path("."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_known_where_the_ranks_stood),
		cmocka_unit_test(an_end_in_order_leaves_no_record),
	};
	return cmocka_run_group_tests(tests, begin, files_teardown);
}
