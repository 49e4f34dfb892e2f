/* SPDX-License-Identifier: Apache-2.0 */
/* A run's directory with an owner and flight records, and the view of it. Include after config.h
 * and cmocka.h. */
#ifndef MUSTER_TEST_VIEW_FIXTURE_H
#define MUSTER_TEST_VIEW_FIXTURE_H

#include "checkpoint/directory/owner.h"
#include "tests/unit/runs/run_folder.h"
#include "top/view.h"

#define RANKS 4

static struct flight_recorder *recorders[RANKS];

/* From now on the run has an owner that lives. */
static inline void begin_running(void)
{
	struct ckpt_dir dir;
	struct owner self = { 0 };
	struct err err;
	assert_int_equal(ckpt_dir_open(&dir, folder, &err), 0);
	if (owner_claim(&dir, &self, NULL, NULL, 10, &err) < 0)
		fail_msg("%s", err.text);
	ckpt_dir_close(&dir);
}

/* A record of a rank in the run's directory, which the caller destroys. */
static inline struct flight_recorder *keep_record(int rank, int world_size, const char *node)
{
	struct ident ident = { .rank = rank, .world_size = world_size };
	char path[FILES_PATH_SIZE + 32], name[32];
	struct err err;
	snprintf(ident.node, sizeof ident.node, "%s", node);
	snprintf(path, sizeof path, "%s/" FLIGHT_FOLDER, folder);
	mkdir(path, 0755);
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct flight_recorder *recorder = flight_create(&ident, &err);
	snprintf(name, sizeof name, "rank-%05d", rank);
	assert_non_null(recorder);
	assert_int_equal(flight_keep(recorder, dirfd, name, &err), 0);
	close(dirfd);
	return recorder;
}

static inline void keep_records(void)
{
	for (int rank = 0; rank < RANKS; rank++)
		recorders[rank] = keep_record(rank, RANKS, rank < 2 ? "n1" : "n2");
}

static inline void drop_records(void)
{
	for (int rank = 0; rank < RANKS; rank++) {
		flight_destroy(recorders[rank]);
		recorders[rank] = NULL;
	}
}

static inline void compute(int rank, uint64_t step)
{
	flight_begin(recorders[rank], FLIGHT_COMPUTE, step, 0);
}

/* The rank waits in a collective of the step. */
static inline void wait_in(int rank, uint64_t step)
{
	struct flight_operation operation = { .operation = "exchange",
		.step = step,
		.bucket = 3,
		.entered = clock_now() };
	snprintf(operation.label, sizeof operation.label, "bucket 3 of step %llu",
		(unsigned long long)step);
	flight_begin(recorders[rank], FLIGHT_REDUCE, step, -1);
	flight_enter(recorders[rank], &operation);
	flight_wait(recorders[rank], true);
}

/* The view of the directory at a time, in seconds from now. */
static inline struct view view_in(struct run *run, double seconds)
{
	struct view view;
	struct flight_list list;
	struct err err;
	if (run_read(folder, run, &err) < 0 || flight_files_read(folder, &list, &err) < 0
		|| view_make(&view, run, &list, clock_wall() + seconds, &err) < 0)
		fail_msg("%s", err.text);
	flight_list_clear(&list);
	return view;
}

static inline void end_view(struct view *view, struct run *run)
{
	view_clear(view);
	run_close(run);
}

#endif
