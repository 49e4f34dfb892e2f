/* SPDX-License-Identifier: Apache-2.0 */
/* muster_end among several processes: one exit status for all, after a save that is durable and a
 * record of the end, whatever a rank came to. */
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/blocked_save.h"
#include "tests/unit/lib/ranks_fixture.h"

#define MEGABYTES 8 /* a save that takes a moment */

/* What the ranks come to. */
static struct plan {
	int statuses[RANKS];
	const char *why; /* that of the odd ones, by muster_agree's word for it */
	bool blocked;    /* the last save */
	int64_t step;    /* of it */
	int noticed;     /* the rank that has a notice; -1: none */
	double timeout;
} how;

static unsigned char state_[MEGABYTES << 20];

static struct muster_ckpt *open_run(struct muster *muster)
{
	int64_t step;
	struct muster_ckpt *ckpt;
	const struct muster_tensor tensor = { "state", "U8", 1, { sizeof state_ }, state_ };
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.dir = files_path("run"),
		.tensors = &tensor,
		.tensor_count = 1,
		.keep_last = 2,
		.timeout = HANG_SECONDS };
	return muster_ckpt_resume(muster, &plan, 0, &ckpt, &step) ? NULL : ckpt;
}

/* The last line of the run's record. */
static void last_record(char line[2000])
{
	FILE *file = fopen(files_path("run/attempts.jsonl"), "r");
	line[0] = '\0';
	while (file && fgets(line, 2000, file))
		;
	if (file)
		fclose(file);
}

/* What is true when muster_end returns, on whichever rank: the save is there, and the end on
 * record. */
static bool is_over(int64_t saved, int status)
{
	char line[2000], step[60], wanted[40];
	struct stat st;
	snprintf(step, sizeof step, "run/step-%08lld", (long long)saved);
	snprintf(wanted, sizeof wanted, "\"status\":%d", status);
	last_record(line);
	return stat(files_path(step), &st) == 0 && strstr(line, "\"event\":\"end\"")
		&& strstr(line, wanted);
}

static int save_and_end(struct muster *muster, int rank)
{
	struct muster_ckpt *ckpt = open_run(muster);
	muster_set_log(NULL, NULL);
	if (rank == how.noticed && (muster_notice_begin() || kill(getpid(), SIGTERM)))
		return -2;
	while (rank == how.noticed && !muster_notice())
		usleep(1000);
	if (ckpt && how.blocked)
		blocked_save_begin(files_path("run"), how.step);
	memset(state_, (int)how.step, sizeof state_);
	if (muster_ckpt_save(ckpt, how.step, NAN))
		return -3;
	/* The reason of a status is that of a call that failed. */
	if (how.statuses[rank] && how.why)
		muster_put(muster, how.why, "", 0);
	int status = muster_end(muster, ckpt, NULL, how.statuses[rank], how.timeout);
	return is_over(how.blocked ? how.step - 1 : how.step, status) ? status : -4;
}

static void run(struct plan plan)
{
	how = plan;
	ranks_run(save_and_end, true);
}

static void assert_recorded(const char *why)
{
	char line[2000];
	last_record(line);
	if (!strstr(line, why))
		fail_msg("'%s' is not in: %s", why, line);
}

static void what_is_done_ends_with_0_and_is_durable(void **state)
{
	run((struct plan) { .step = 1, .noticed = -1 });
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(ranks_outcomes[rank].status, MUSTER_OK);
	assert_recorded("\"why\":\"finished\"");
}

static void one_rank_that_stops_for_a_notice_brings_all_back(void **state)
{
	run((struct plan) { .step = 2, .noticed = 0, .statuses = { 75, 75, 75, 75 } });
	ranks_assert(MUSTER_REQUEUE, "SIGTERM", -1);
	assert_recorded("\"why\":\"SIGTERM\"");
	/* Rank 0 stops because it hears of rank 2's; its own is still on its way. */
	run((struct plan) { .step = 3, .noticed = 2, .statuses = { 75, 0, 75, 0 } });
	ranks_assert(MUSTER_REQUEUE, "): SIGTERM", -1);
	assert_recorded("): SIGTERM\"");
	run((struct plan) { .step = 4, .noticed = -1, .statuses = { 0, 75, 0, 0 } });
	ranks_assert(MUSTER_REQUEUE, "): it stopped before its end", -1);
}

/* The key that a rank could not put is its reason. */
static void a_failure_is_that_of_all_and_on_record(void **state)
{
	run((
		struct plan) { .step = 5, .noticed = -1, .statuses = { 75, 0, 65, 75 }, .why = "bad key" });
	ranks_assert(MUSTER_DATA, "): rendezvous: couldn't use the key", -1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 2 (on "), ranks_outcomes[0].text);
	assert_recorded("\"why\":\"rank 2 (on ");
	/* A status that no exit has. */
	run((struct plan) { .step = 6, .noticed = -1, .statuses = { 0, 256, 0, 0 }, .why = "bad key" });
	ranks_assert(MUSTER_FAULT, "): rendezvous: couldn't use the key", -1);
	/* A disk that is rank 0's alone: the others are there, and nobody waits. */
	run((struct plan) { .step = 7, .noticed = -1, .statuses = { 69, 0, 0, 0 }, .why = "bad key" });
	ranks_assert(MUSTER_LOST, "): rendezvous: couldn't use the key", -1);
	assert_true(ranks_outcomes[1].seconds < HANG_SECONDS / 2.0);
}

static void a_last_save_that_failed_makes_no_good_end(void **state)
{
	run((
		struct plan) { .step = 8, .noticed = -1, .statuses = { 75, 75, 75, 75 }, .blocked = true });
	ranks_assert(MUSTER_LOST, BLOCKED_SAVE_WORDS, -1);
	assert_ptr_equal(strstr(ranks_outcomes[3].text, "rank 0 (on "), ranks_outcomes[3].text);
	run((struct plan) { .step = 8, .noticed = -1 });
	for (int rank = 0; rank < RANKS; rank++)
		assert_int_equal(ranks_outcomes[rank].status, MUSTER_OK);
}

static void a_timeout_that_can_not_be_ends_all_the_same(void **state)
{
	run((struct plan) { .step = 9, .noticed = -1, .timeout = -1 });
	ranks_assert(MUSTER_USAGE, "couldn't use a timeout of -1 s", -1);
}

/* ---- failures that all have heard of, and ranks that are gone ---- */

static int hear_and_end(struct muster *muster, int rank)
{
	int64_t mine = 0, all[RANKS];
	int status = rank == 1 ? muster_agree(muster, MUSTER_FAULT, "no memory", 0)
						   : muster_allgather(muster, &mine, all, sizeof mine, 0);
	return muster_end(muster, NULL, NULL, status, 0);
}

static void what_all_have_heard_is_not_told_twice(void **state)
{
	char wanted[300], host[256];
	assert_int_equal(gethostname(host, sizeof host), 0);
	snprintf(wanted, sizeof wanted, "rank 1 (on %s): no memory", host);
	ranks_run(hear_and_end, true);
	ranks_assert(MUSTER_FAULT, wanted, -1);
	assert_string_equal(ranks_outcomes[0].text, wanted);
}

static int end_alone(struct muster *muster, int rank)
{
	struct muster_ckpt *ckpt = open_run(muster);
	int64_t mine = 0, all[RANKS];
	int status = MUSTER_OK;
	if (muster_ckpt_save(ckpt, how.step, NAN))
		return -2;
	if (rank == 2 && muster_put(muster, how.why, "", 0))
		status = MUSTER_DATA;
	else
		status = muster_allgather(muster, &mine, all, sizeof mine, 0);
	status = muster_end(muster, ckpt, NULL, status, HANG_SECONDS);
	return is_over(how.step, status) ? status : -3;
}

/* A rank that goes to the end by itself, be it a failure or a mistake of the program. */
static void who_stands_elsewhere_hears_of_the_end(void **state)
{
	how = (struct plan) { .step = 12, .why = "bad key", .noticed = -1 };
	ranks_run(end_alone, true);
	ranks_assert(MUSTER_DATA, "): rendezvous: couldn't use the key", -1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 2 (on "), ranks_outcomes[0].text);
	assert_null(strstr(ranks_outcomes[0].text + 1, "rank 2 (on "));
	for (int rank = 0; rank < RANKS; rank++)
		assert_true(ranks_outcomes[rank].seconds < HANG_SECONDS / 2.0);
}

static int finish_too_early(struct muster *muster, int rank)
{
	int64_t mine = 0, all[RANKS];
	int status = rank == 2 ? MUSTER_OK : muster_allgather(muster, &mine, all, sizeof mine, 0);
	return muster_end(muster, NULL, NULL, status, HANG_SECONDS);
}

static void who_finishes_while_others_go_on_is_told_so(void **state)
{
	ranks_run(finish_too_early, true);
	ranks_assert(MUSTER_USAGE, " is in muster_end, rank 0 (on ", -1);
	for (int rank = 0; rank < RANKS; rank++)
		assert_true(ranks_outcomes[rank].seconds < HANG_SECONDS / 2.0);
}

static int lose_rank_2(struct muster *muster, int rank)
{
	struct muster_ckpt *ckpt = open_run(muster);
	if (rank == 2)
		_exit(0);
	muster_ckpt_save(ckpt, 10, NAN);
	return muster_end(muster, ckpt, NULL, rank == 0 ? MUSTER_OK : MUSTER_REQUEUE, 0.5);
}

static void who_does_not_come_is_named_in_time(void **state)
{
	ranks_run(lose_rank_2, true);
	for (int rank = 0; rank < RANKS; rank++) {
		if (rank == 2)
			continue;
		assert_int_equal(ranks_outcomes[rank].status, MUSTER_LOST);
		assert_non_null(strstr(ranks_outcomes[rank].text,
			"couldn't meet 1 of 4 ranks within 1 s: rank 2 (on "));
		assert_true(ranks_outcomes[rank].seconds < HANG_SECONDS / 2.0);
	}
	assert_recorded("\"status\":69");
	/* The directory was given back. */
	run((struct plan) { .step = 13, .noticed = -1 });
	assert_int_equal(ranks_outcomes[0].status, MUSTER_OK);
}

static void without_a_muster_the_status_is_what_it_was(void **state)
{
	assert_int_equal(muster_end(NULL, NULL, NULL, MUSTER_LOST, 0), MUSTER_LOST);
	assert_int_equal(muster_end(NULL, NULL, NULL, MUSTER_OK, -1), MUSTER_OK);
}

static int begin(void **state)
{
	return files_setup(state) < 0 ? -1 : ranks_setup(files_path("."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_done_ends_with_0_and_is_durable),
		cmocka_unit_test(one_rank_that_stops_for_a_notice_brings_all_back),
		cmocka_unit_test(a_failure_is_that_of_all_and_on_record),
		cmocka_unit_test(a_last_save_that_failed_makes_no_good_end),
		cmocka_unit_test(a_timeout_that_can_not_be_ends_all_the_same),
		cmocka_unit_test(what_all_have_heard_is_not_told_twice),
		cmocka_unit_test(who_stands_elsewhere_hears_of_the_end),
		cmocka_unit_test(who_finishes_while_others_go_on_is_told_so),
		cmocka_unit_test(who_does_not_come_is_named_in_time),
		cmocka_unit_test(without_a_muster_the_status_is_what_it_was),
	};
	return cmocka_run_group_tests(tests, begin, files_teardown);
}
