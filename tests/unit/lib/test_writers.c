/* SPDX-License-Identifier: Apache-2.0 */
/* Saves that several ranks share: each tensor is written once, by a rank that has it, whole or in
 * boxes; what the ranks don't agree on is no checkpoint; and any number of ranks reads it. */
#include "config.h"

#include <dirent.h>
#include <math.h>
#include <setjmp.h>
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

#define MODEL 5
#define STATE 8
#define ROWS 8 /* of each rank's box */
#define MOST 3000

/* What a rank does otherwise than the rest. */
static struct odd {
	int rank;
	enum { NOTHING, LACKS_A_TENSOR, HAS_MORE_ROWS } how;
	enum muster_writers writers;
	int64_t step;
} odd;

/* ---- a state ---- */

/* Element i of tensor t, with the model's tensors first. */
static float value(int64_t step, size_t t, size_t i)
{
	return (float)(step * 1000000 + (int64_t)(t * 5000 + i));
}

struct made {
	struct muster_tensor tensors[MODEL + STATE];
	struct muster_placement placements[MODEL + STATE];
	float data[MODEL + STATE][MOST];
	struct muster_state state;
};

/* Boxes are the rows of "sharded" and, in its last tensors, the columns of "columns". */
static void make(struct made *made, int rank, int64_t step)
{
	static const struct muster_tensor all[MODEL + STATE] = {
		{ "embedding", "F32", 2, { 50, 60 }, NULL },
		{ "scale", "F32", 0, { 0 }, NULL },
		{ "layer.0", "F32", 2, { 20, 20 }, NULL },
		{ "running_mean", "F32", 1, { 7 }, NULL },
		{ "layer.1", "F32", 2, { 20, 20 }, NULL },
		{ "moment/embedding", "F32", 2, { 50, 60 }, NULL },
		{ "moment/layer", "F32", 2, { 40, 20 }, NULL },
		{ "empty", "F32", 2, { 0, 4 }, NULL },
		{ "random/2", "F32", 1, { 9 }, NULL },
		{ "sharded", "F32", 2, { ROWS, 6 }, NULL },
		{ "sharded", "F32", 2, { ROWS, 6 }, NULL },
		{ "sharded", "F32", 2, { ROWS, 6 }, NULL },
		{ "sharded", "F32", 2, { ROWS, 6 }, NULL },
	};
	static const int ranks[MODEL + STATE] = { -1, -1, -1, 0, -1, -1, -1, -1, 2, 3, 1, 0, 2 };
	*made = (struct made) { 0 };
	for (size_t t = 0; t < MODEL + STATE; t++) {
		struct muster_placement *placement = &made->placements[t];
		made->tensors[t] = all[t];
		placement->rank = ranks[t];
		if (strcmp(all[t].name, "sharded") == 0) {
			placement->is_box = 1;
			placement->shape[0] = (int64_t)RANKS * ROWS;
			placement->shape[1] = 6;
			placement->offset[0] = (int64_t)ROWS * ranks[t];
		}
		if (ranks[t] >= 0 && ranks[t] != rank)
			continue; /* no data */
		made->tensors[t].data = made->data[t];
		for (size_t i = 0; i < MOST; i++)
			made->data[t][i] = placement->is_box
				? value(step, MODEL + 4, i + (size_t)placement->offset[0] * 6)
				: value(step, t, i);
	}
	made->state = (struct muster_state) { .size = sizeof made->state,
		.model = made->tensors,
		.model_count = MODEL,
		.state = made->tensors + MODEL,
		.state_count = STATE,
		.values = rank == 0 ? "{\"of\": \"rank 0\"}" : "{}",
		.cursor = (uint64_t)step,
		.loss = rank + 0.5,
		.validation_loss = NAN,
		.model_placements = made->placements,
		.state_placements = made->placements + MODEL };
}

/* Whether all of the state is there, as rank 0 read it. 0, or the number of a line. */
/* Some rows of a tensor, across the boxes of several ranks. */
static int check_box(struct muster_saved *saved, const struct muster_tensor *wanted, size_t t,
	int64_t rows)
{
	float data[MOST];
	const int64_t step = muster_saved_step(saved);
	int64_t offset[8] = { 0 }, shape[8];
	size_t row = 1;
	if (wanted->dims == 0 || rows < 3)
		return 0;
	memcpy(shape, wanted->shape, sizeof shape);
	for (int d = 1; d < wanted->dims; d++)
		row *= (size_t)shape[d];
	offset[0] = 1;
	shape[0] = rows - 2;
	if (muster_saved_read_box(saved, wanted->name, offset, shape, data))
		return __LINE__;
	for (size_t i = 0; i < row * (size_t)shape[0]; i++)
		if (data[i] != value(step, t, row + i))
			return __LINE__;
	return 0;
}

static int check_tensor(struct muster_saved *saved, const struct muster_tensor *wanted, size_t t,
	int64_t step)
{
	float data[MOST];
	size_t count = 1;
	int64_t rows = strcmp(wanted->name, "sharded") == 0 ? (int64_t)RANKS * ROWS : wanted->shape[0];
	for (int d = 0; d < wanted->dims; d++)
		count *= (size_t)(d == 0 ? rows : wanted->shape[d]);
	if (muster_saved_read(saved, wanted->name, 0, count, data))
		return __LINE__;
	for (size_t i = 0; i < count; i++)
		if (data[i] != value(step, t, i))
			return __LINE__;
	return check_box(saved, wanted, t, rows);
}

static int check(struct muster_saved *saved)
{
	static struct made made;
	const char *values;
	int64_t step = muster_saved_step(saved);
	make(&made, 0, step);
	if (muster_saved_count(saved, 0) != MODEL || muster_saved_count(saved, 1) != 5)
		return __LINE__;
	for (size_t t = 0; t < MODEL + 5; t++) {
		int line = check_tensor(saved, &made.tensors[t], t, step);
		if (line)
			return line;
	}
	if (muster_saved_values(saved, &values) || !strstr(values, "rank 0"))
		return __LINE__;
	return strstr(muster_saved_manifest(saved), "\"loss\": 0.5") ? 0 : __LINE__;
}

/* ---- ranks ---- */

static int resume(struct muster *muster, struct muster_ckpt **ckpt, struct muster_saved **saved)
{
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.timeout = HANG_SECONDS,
		.dir = files_path("run"),
		.writers = (int)odd.writers };
	return muster_ckpt_resume_state(muster, &plan, 0, ckpt, saved);
}

/* All ranks together write each tensor once. */
static int check_own(struct muster *muster, const struct muster_ckpt *ckpt, struct made *made)
{
	unsigned char own[MODEL + STATE], all[RANKS][MODEL + STATE];
	if (muster_ckpt_own(ckpt, &made->state, own)
		|| muster_allgather(muster, own, all, sizeof own, 0))
		return __LINE__;
	for (size_t t = 0; t < MODEL + STATE; t++) {
		int writers = 0;
		for (int rank = 0; rank < RANKS; rank++)
			writers += all[rank][t];
		if (writers != 1)
			return __LINE__;
		/* What it doesn't write, it needn't have. */
		if (!own[t])
			made->tensors[t].data = NULL;
	}
	return 0;
}

/* Resumes, checks what it finds, and saves a step; 100 + the step it found, or the status of the
 * save. */
static int resume_and_save(struct muster *muster, int rank)
{
	static struct made made;
	struct muster_ckpt *ckpt;
	struct muster_saved *saved;
	int status = resume(muster, &ckpt, &saved);
	if (status)
		return status;
	const bool writes = rank == 0 || odd.writers == MUSTER_WRITERS_ALL;
	const int found = (int)muster_saved_step(saved);
	if (writes != (ckpt != NULL) || (saved && check(saved)))
		return -2;
	muster_saved_close(saved);
	make(&made, rank, odd.step);
	if (odd.how == NOTHING && check_own(muster, ckpt, &made))
		return -3;
	if (odd.rank == rank && odd.how == LACKS_A_TENSOR)
		made.state.model_count--;
	if (odd.rank == rank && odd.how == HAS_MORE_ROWS)
		made.tensors[MODEL].shape[0]--;
	status = muster_ckpt_save_state(ckpt, odd.step, &made.state);
	if (status == MUSTER_OK)
		status = muster_ckpt_wait(ckpt, odd.step, 0);
	int end = muster_end(muster, ckpt, NULL, status, 0);
	return status ? status : end ? end : 100 + found;
}

static void run(struct odd how)
{
	odd = how;
	ranks_run(resume_and_save, true);
}

static void assert_found(int64_t step)
{
	ranks_assert_each(100 + (int)step, "", -1);
}

static int files_of(const char *folder, const char *word)
{
	int count = 0;
	DIR *dir = opendir(folder);
	assert_non_null(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		count += strstr(entry->d_name, word) != NULL;
	closedir(dir);
	return count;
}

static void each_rank_writes_its_part(void **state)
{
	run((struct odd) { .writers = MUSTER_WRITERS_ALL, .step = 3 });
	assert_found(-1);
	assert_int_equal(files_of(files_path("run/step-00000003"), "part-"), RANKS);
	assert_int_equal(files_of(files_path("run/step-00000003"), "state-"), RANKS);
	run((struct odd) { .writers = MUSTER_WRITERS_ALL, .step = 5 });
	assert_found(3);
}

/* Rank 0 alone can't save what others have. */
static void a_rank_that_does_not_save_has_nothing_to_give(void **state)
{
	run((struct odd) { .writers = MUSTER_WRITERS_RANK0,
		.how = LACKS_A_TENSOR,
		.rank = -1,
		.step = 6 });
	assert_int_equal(ranks_outcomes[0].status, MUSTER_USAGE);
	assert_non_null(strstr(ranks_outcomes[0].text, "which doesn't save"));
	run((struct odd) { .writers = MUSTER_WRITERS_ALL, .step = 6 });
	assert_found(5);
}

/* Both parts can be written, but they are not parts of one state. */
static void ranks_with_other_tensors_make_no_checkpoint(void **state)
{
	muster_set_log(NULL, NULL);
	for (int how = LACKS_A_TENSOR; how <= HAS_MORE_ROWS; how++) {
		run((struct odd) { .rank = 2, .how = how, .writers = MUSTER_WRITERS_ALL, .step = 7 });
		assert_int_not_equal(ranks_outcomes[0].status, 100 + 6);
		if (!strstr(ranks_outcomes[0].text,
				"parts 1 and 3 of step 7 differ in their lists of "
				"tensors"))
			fail_msg("%d: %s", how, ranks_outcomes[0].text);
		assert_int_equal(access(files_path("run/step-00000007"), F_OK), -1);
	}
	run((struct odd) { .writers = MUSTER_WRITERS_ALL, .step = 8 });
	assert_found(6);
}

/* ---- the tensors of a plan ---- */

static int resume_arrays(struct muster *muster, int rank)
{
	static float weights[3][MOST];
	const struct muster_tensor tensors[] = { { "a", "F32", 1, { MOST }, weights[0] },
		{ "b", "F32", 1, { MOST }, weights[1] }, { "c", "F32", 1, { 5 }, weights[2] } };
	const struct muster_ckpt_plan plan = { .size = sizeof plan,
		.timeout = HANG_SECONDS,
		.dir = files_path("arrays"),
		.tensors = tensors,
		.tensor_count = 3,
		.writers = (int)odd.writers };
	struct muster_ckpt *ckpt;
	int64_t step;
	(void)rank;
	int status = muster_ckpt_resume(muster, &plan, 0, &ckpt, &step);
	for (size_t t = 0; status == 0 && step >= 0 && t < 3; t++)
		for (size_t i = 0; i < (size_t)tensors[t].shape[0]; i++)
			if (weights[t][i] != value(step, t, i))
				status = -2;
	for (size_t t = 0; t < 3; t++)
		for (size_t i = 0; i < MOST; i++)
			weights[t][i] = value(odd.step, t, i);
	if (status == 0)
		status = muster_ckpt_save(ckpt, odd.step, NAN);
	int end = muster_end(muster, ckpt, NULL, status, 0);
	return status ? status : end ? end : 100 + (int)step;
}

/* Written by all, read by all, also where rank 0 alone saves next. */
static void the_tensors_of_a_plan_are_shared_out(void **state)
{
	static const enum muster_writers writers[] = { MUSTER_WRITERS_ALL, MUSTER_WRITERS_RANK0,
		MUSTER_WRITERS_NODE, MUSTER_WRITERS_ALL };
	for (int i = 0; i < 4; i++) {
		odd = (struct odd) { .rank = -1, .writers = writers[i], .step = i + 1 };
		ranks_run(resume_arrays, true);
		assert_found(i > 0 ? i : -1);
	}
	assert_int_equal(files_of(files_path("arrays/step-00000001"), "model-"), 3);
	assert_int_equal(files_of(files_path("arrays/step-00000002"), "part-"), 0);
}

/* ---- what can't be ---- */

static int refuse(struct muster *muster, int rank)
{
	static struct made made;
	struct muster_ckpt *ckpt;
	struct muster_ckpt_plan plan = { .size = sizeof plan,
		.timeout = HANG_SECONDS,
		.dir = files_path("other"),
		.writers = 9 };
	if (rank == 0)
		RANKS_REFUSED(muster_ckpt_open(muster, &plan, &ckpt), "its writers are 9");
	plan.writers = MUSTER_WRITERS_ALL;
	if (rank == 0)
		RANKS_REFUSED(muster_ckpt_open(muster, &plan, &ckpt), "several writers, which meet in");
	plan.writers = rank == 1 ? MUSTER_WRITERS_NODE : MUSTER_WRITERS_ALL;
	struct muster_saved *saved;
	RANKS_REFUSED(muster_ckpt_resume_state(muster, &plan, 0, &ckpt, &saved),
		"identity or writers are not those of rank 0");
	plan.writers = MUSTER_WRITERS_ALL;
	if (muster_ckpt_resume_state(muster, &plan, 0, &ckpt, &saved))
		return __LINE__;
	make(&made, rank, 1);
	made.placements[MODEL + 3].rank = RANKS;
	RANKS_REFUSED(muster_ckpt_save_state(ckpt, 1, &made.state), "rank 4 has it");
	make(&made, rank, 1);
	made.placements[0].is_box = 1;
	RANKS_REFUSED(muster_ckpt_save_state(ckpt, 1, &made.state), "the model's tensors are saved");
	make(&made, rank, 1);
	made.placements[MODEL + 5].offset[0]--;
	RANKS_REFUSED(muster_ckpt_save_state(ckpt, 1, &made.state), "two boxes of tensor sharded");
	make(&made, rank, 1);
	made.state.state_count--;
	RANKS_REFUSED(muster_ckpt_save_state(ckpt, 1, &made.state), "of its 192 elements");
	make(&made, rank, 1);
	for (size_t t = 0; t < MODEL + STATE; t++)
		made.tensors[t].data = NULL;
	RANKS_REFUSED(muster_ckpt_save_state(ckpt, 1, &made.state), "a dtype and data");
	return muster_end(muster, ckpt, NULL, MUSTER_OK, 0);
}

static void what_cannot_be_is_refused(void **state)
{
	ranks_run(refuse, true);
	ranks_assert_each(MUSTER_OK, "", -1);
}

static int setup(void **state)
{
	return files_setup(state) || ranks_setup(files_path("."));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_rank_writes_its_part),
		cmocka_unit_test(a_rank_that_does_not_save_has_nothing_to_give),
		cmocka_unit_test(ranks_with_other_tensors_make_no_checkpoint),
		cmocka_unit_test(the_tensors_of_a_plan_are_shared_out),
		cmocka_unit_test(what_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, files_teardown);
}
