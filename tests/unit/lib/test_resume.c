/* SPDX-License-Identifier: Apache-2.0 */
/* muster_ckpt_resume among several processes: all have the state of the newest checkpoint that is
 * whole, or none goes on and all say in one line why. */
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

#include "tests/unit/files.h"
#include "tests/unit/hang.h"
#include "tests/unit/lib/ranks_fixture.h"

#define COUNT 20000 /* more than the rendezvous carries */

static double weights[COUNT];
static int64_t counter;

/* What a rank does otherwise than the rest. */
static struct odd {
	int rank;
	const char *dir;  /* in the test's folder */
	const char *name; /* of the second tensor */
	int64_t saves;    /* a step, -1: none */
} odd;

static void set_state(int64_t step, double sign)
{
	counter = step;
	for (int i = 0; i < COUNT; i++)
		weights[i] = sign * (double)(step * COUNT + i) / 7;
}

static bool has_state(int64_t step)
{
	bool same = counter == step;
	for (int i = 0; i < COUNT && same; i++)
		same = weights[i] == (double)(step * COUNT + i) / 7;
	return same;
}

static int resume(struct muster *muster, int rank, int64_t *step, struct muster_ckpt **ckpt)
{
	struct muster_tensor tensors[] = {
		{ "weights", "F64", 1, { COUNT }, weights },
		{ rank == odd.rank && odd.name ? odd.name : "counter", "I64", 0, { 0 }, &counter },
	};
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.tensors = tensors,
		.tensor_count = 2,
		.timeout = HANG_SECONDS,
		.dir = rank == odd.rank && odd.dir ? odd.dir : files_path("run") };
	return muster_ckpt_resume(muster, &plan, 0, ckpt, step);
}

/* Resumes and hands a save over; the status of its resume, or 100 + that step. */
static int resume_and_save(struct muster *muster, int rank)
{
	int64_t step = 77;
	struct muster_ckpt *ckpt = (struct muster_ckpt *)(void *)&step;
	set_state(-2, -1);
	int status = resume(muster, rank, &step, &ckpt);
	if (status)
		return ckpt || step != -1 ? -2 : status;
	if ((rank == 0) != (ckpt != NULL) || (step < 0 ? counter != -2 : !has_state(step)))
		return -3;
	if (odd.saves >= 0) {
		set_state(odd.saves, 1);
		if (muster_ckpt_save(ckpt, odd.saves, NAN) || muster_ckpt_wait(ckpt, odd.saves, 0))
			return -4;
	}
	muster_ckpt_close(ckpt, MUSTER_OK, "finished");
	return muster_fence(muster, 0) ? -5 : 100 + (int)step;
}

static void run(struct odd how)
{
	odd = how;
	ranks_run(resume_and_save, false);
}

static void assert_step(int64_t step)
{
	ranks_assert_each(100 + (int)step, "", -1);
}

static void all_ranks_begin_where_the_newest_checkpoint_stands(void **state)
{
	run((struct odd) { .rank = -1, .saves = 5 });
	assert_step(-1);
	run((struct odd) { .rank = -1, .saves = 9 });
	assert_step(5);
	run((struct odd) { .rank = -1, .saves = -1 });
	assert_step(9);
}

/* Rank 0 finds out, and the others read what it has read. */
static void what_is_damaged_is_used_by_none(void **state)
{
	struct stat st;
	int fd = open(files_path("run/step-00000009/model-00001-of-00001.safetensors"), O_RDWR);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_int_equal(pwrite(fd, "\x55", 1, st.st_size - 3), 1);
	close(fd);
	muster_set_log(NULL, NULL);
	run((struct odd) { .rank = -1, .saves = -1 });
	assert_step(5);
	assert_int_equal(stat(files_path("run/step-00000009.damaged-1"), &st), 0);
}

static void a_rank_with_another_plan_is_named_by_all(void **state)
{
	run((struct odd) { .rank = 2, .name = "banners", .saves = -1 });
	ranks_assert(MUSTER_USAGE,
		"): resume: couldn't use this rank's plan: its tensors, identity or writers are not those "
		"of rank 0",
		-1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 2 (on "), ranks_outcomes[0].text);
	run((struct odd) { .rank = 3, .name = "", .saves = -1 });
	ranks_assert(MUSTER_USAGE, "): checkpoint: couldn't use tensor 1: it needs a name", -1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 3 (on "), ranks_outcomes[0].text);
	/* Also that of a checkpoint. */
	run((struct odd) { .rank = 0, .name = "banners", .saves = -1 });
	ranks_assert(MUSTER_DATA, "): resume: the checkpoint of step 5 has no tensor banners", -1);
}

static void a_rank_that_sees_another_directory_is_named_by_all(void **state)
{
	run((struct odd) { .rank = 1, .dir = files_path("nowhere"), .saves = -1 });
	ranks_assert(MUSTER_USAGE,
		"which rank 0 has read (does this node see the same directory?): ", -1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 1 (on "), ranks_outcomes[0].text);
	/* It has a checkpoint of that step, and another one. */
	assert_int_equal(rename(files_path("run"), files_path("other")), 0);
	run((struct odd) { .rank = -1, .saves = 5 });
	assert_step(-1);
	run((struct odd) { .rank = 1, .dir = files_path("other"), .saves = -1 });
	ranks_assert(MUSTER_USAGE, "(does this node see the same directory?): it is another one here",
		-1);
	/* And one without that step. */
	run((struct odd) { .rank = -1, .saves = 6 });
	assert_step(5);
	run((struct odd) { .rank = 1, .dir = files_path("other"), .saves = -1 });
	assert_int_not_equal(ranks_outcomes[2].status, MUSTER_OK);
	ranks_assert(ranks_outcomes[2].status, "resume: couldn't read step 6 in ", -1);
}

static void a_directory_that_rank_0_can_not_use_ends_all(void **state)
{
	run((struct odd) { .rank = 0, .dir = "/proc/nowhere", .saves = -1 });
	ranks_assert(MUSTER_USAGE, "/proc/nowhere", -1);
	assert_ptr_equal(strstr(ranks_outcomes[3].text, "rank 0 (on "), ranks_outcomes[3].text);
	/* Nothing of all this has kept the run. */
	run((struct odd) { .rank = -1, .saves = -1 });
	assert_step(6);
}

/* ---- states ---- */

/* Resumes, and rank 0 saves; the status of the resume, or 100 + its step. The state has as many
 * tensors as the step says. */
static int resume_state(struct muster *muster, int rank)
{
	struct muster_saved *saved;
	struct muster_ckpt *ckpt;
	int64_t step;
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.dir = files_path("states"),
		.identity = rank == odd.rank ? "{\"lr\": 2}" : "{\"lr\": 1}",
		.timeout = HANG_SECONDS };
	int status = muster_ckpt_resume_state(muster, &plan, 0, &ckpt, &saved);
	if (status)
		return ckpt || saved ? -2 : status;
	if ((rank == 0) != (ckpt != NULL) || (step = muster_saved_step(saved)) < -1)
		return -3;
	if (saved
		&& (muster_saved_count(saved, 1) != (size_t)step
			|| muster_saved_read(saved, "1", 0, COUNT, weights) || weights[7] != (double)step))
		return -4;
	muster_saved_close(saved);
	if (rank == 0 && odd.saves >= 0) {
		struct muster_tensor tensors[9];
		char names[9][2] = { "0", "1", "2", "3", "4", "5", "6", "7", "8" };
		for (int i = 0; i < COUNT; i++)
			weights[i] = (double)odd.saves;
		for (int i = 0; i < odd.saves; i++)
			tensors[i] = (struct muster_tensor) { names[i], "F64", 1, { COUNT }, weights };
		const struct muster_state content = { .size = sizeof content,
			.state = tensors,
			.state_count = (size_t)odd.saves,
			.loss = NAN,
			.validation_loss = NAN };
		if (muster_ckpt_save_state(ckpt, odd.saves, &content))
			return -5;
	}
	muster_ckpt_close(ckpt, MUSTER_OK, "finished");
	return muster_fence(muster, 0) ? -6 : 100 + (int)step;
}

static void all_ranks_read_the_same_state(void **state)
{
	static const int64_t saves[] = { 3, 8, -1 };
	for (int i = 0; i < 3; i++) {
		odd = (struct odd) { .rank = -1, .saves = saves[i] };
		ranks_run(resume_state, false);
		assert_step(i == 0 ? -1 : saves[i - 1]);
	}
	odd.rank = 2;
	ranks_run(resume_state, false);
	ranks_assert(MUSTER_USAGE, "its tensors, identity or writers are not those of rank 0", -1);
	assert_ptr_equal(strstr(ranks_outcomes[0].text, "rank 2 (on "), ranks_outcomes[0].text);
	odd.rank = 0;
	ranks_run(resume_state, false);
	ranks_assert(MUSTER_USAGE, "\"lr\" 1, and this run has 2", -1);
}

/* ---- ranks that are elsewhere ---- */

static int fail_before(struct muster *muster, int rank)
{
	int64_t step;
	struct muster_ckpt *ckpt;
	return rank == 3 ? muster_agree(muster, MUSTER_FAULT, "no memory", 0)
					 : resume(muster, rank, &step, &ckpt);
}

static int never_come(struct muster *muster, int rank)
{
	int64_t step;
	struct muster_ckpt *ckpt;
	const struct muster_tensor tensor = { "counter", "I64", 0, { 0 }, &counter };
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.dir = files_path("late"),
		.tensors = &tensor,
		.tensor_count = 1 };
	return rank == 3 ? raise(SIGKILL) : muster_ckpt_resume(muster, &plan, 1, &ckpt, &step);
}

static void a_rank_that_fails_before_or_never_comes_is_told(void **state)
{
	odd = (struct odd) { .rank = -1 };
	ranks_run(fail_before, false);
	ranks_assert(MUSTER_FAULT, "): no memory", -1);
	ranks_run(never_come, false);
	ranks_assert_each(MUSTER_LOST, "couldn't meet 1 of 4 ranks within 1 s: rank 3 (on ", 3);
}

static int refuse_all(struct muster *muster, int rank)
{
	int64_t step;
	struct muster_ckpt *ckpt;
	struct muster_saved *saved;
	const struct muster_ckpt_plan plan = { .size = sizeof plan };
	RANKS_REFUSED(muster_ckpt_resume(NULL, &plan, 0, &ckpt, &step), "muster_open");
	RANKS_REFUSED(muster_ckpt_resume(muster, &plan, -1, &ckpt, &step), "couldn't use a timeout of");
	RANKS_REFUSED(muster_ckpt_resume(muster, &plan, 0, NULL, &step),
		"NULL as the place for the struct muster_ckpt");
	RANKS_REFUSED(muster_ckpt_resume(muster, &plan, 0, &ckpt, NULL),
		"NULL as the place for the step");
	RANKS_REFUSED(muster_ckpt_resume_state(NULL, &plan, 0, &ckpt, &saved), "muster_open");
	RANKS_REFUSED(muster_ckpt_resume_state(muster, &plan, 0, NULL, &saved),
		"NULL as the place for the struct muster_ckpt");
	RANKS_REFUSED(muster_ckpt_resume_state(muster, &plan, 0, &ckpt, NULL),
		"NULL as the place for the struct muster_saved");
	if (muster_agree(muster, MUSTER_OK, NULL, 0)) /* nothing of it has reached the others */
		return __LINE__;
	RANKS_REFUSED(muster_ckpt_resume(muster, NULL, 0, &ckpt, &step), "NULL as the plan");
	RANKS_REFUSED(muster_ckpt_resume(muster, &plan, 0, &ckpt, &step), "it needs a directory");
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
		cmocka_unit_test(all_ranks_begin_where_the_newest_checkpoint_stands),
		cmocka_unit_test(what_is_damaged_is_used_by_none),
		cmocka_unit_test(a_rank_with_another_plan_is_named_by_all),
		cmocka_unit_test(a_rank_that_sees_another_directory_is_named_by_all),
		cmocka_unit_test(a_directory_that_rank_0_can_not_use_ends_all),
		cmocka_unit_test(all_ranks_read_the_same_state),
		cmocka_unit_test(a_rank_that_fails_before_or_never_comes_is_told),
		cmocka_unit_test(bad_arguments_have_a_line),
	};
	return cmocka_run_group_tests(tests, begin, files_teardown);
}
