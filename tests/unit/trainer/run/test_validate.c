/* SPDX-License-Identifier: Apache-2.0 */
/* validate: the mean over the first samples, each of them once, whichever rank computes it; the
 * same bits in every world. A sample that can't be read is every rank's error. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "tests/unit/files.h"
#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/model/model_fixture.h"
#include "trainer/comm/status_exchange.h"
#include "trainer/run/validate.h"

#define ROWS 11
#define MICROBATCH 3

/* In memory that the ranks share with the test. */
struct job {
	struct dataset *data;
	uint64_t samples;
	int vocabulary;
	double *loss; /* [rank] */
};

static char features[400], classes[400];

static const char *write_npy(const char *name, const char *dictionary, const void *data,
	size_t size)
{
	unsigned char file[2000] = "\x93NUMPY\1\0\x76";
	memset(file + 10, ' ', 118);
	memcpy(file + 10, dictionary, strlen(dictionary));
	file[127] = '\n';
	memcpy(file + 128, data, size);
	return files_write(name, file, 128 + size);
}

/* Two files of each kind, with a border inside a microbatch. */
static int write_tables(void **state)
{
	float x[ROWS][9];
	uint8_t y[ROWS];
	if (files_setup(state) < 0)
		return -1;
	for (int row = 0; row < ROWS; row++) {
		y[row] = (uint8_t)(row * 3 % 5);
		for (int i = 0; i < 9; i++)
			x[row][i] = (float)(2 * fixture_unit(3, (uint32_t)row, (uint32_t)i) - 1);
	}
	write_npy("x1.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 9), }", x,
		4 * sizeof x[0]);
	write_npy("x2.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (7, 9), }", x[4],
		7 * sizeof x[0]);
	write_npy("y1.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", y, 4);
	write_npy("y2.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }", y + 4, 7);
	snprintf(features, sizeof features, "%s/x*.npy", files_dir);
	snprintf(classes, sizeof classes, "%s/y*.npy", files_dir);
	return 0;
}

/* Each sample on its own, added in the order of the files. */
static double expected(const struct job *job)
{
	struct fixture f = fixture_open(&fixture_mlp, false, MICROBATCH);
	struct batch *batch = batch_alloc(job->data, 1, NULL);
	double sum = 0;
	for (uint64_t i = 0; i < job->samples; i++) {
		double loss;
		int64_t valid;
		assert_int_equal(dataset_read(job->data, &i, 1, fixture_mlp.classes, batch, NULL), 0);
		model_loss(f.model, batch, &loss, &valid);
		assert_int_equal(valid, 1);
		sum += loss;
	}
	batch_free(batch);
	fixture_close(&f);
	return sum / (double)job->samples;
}

static void count(void *arg, int samples)
{
	*(int *)arg += samples;
}

static int validate(struct comm *comm, void *arg, struct err *err)
{
	struct job *job = arg;
	int watched = 0;
	struct fixture f = fixture_open(&fixture_mlp, false, MICROBATCH);
	struct validation *validation =
		validation_create(job->data, f.model, comm, job->samples, MICROBATCH, job->vocabulary, err);
	WORLD_CHECK(validation);
	validation_set_watch(validation, count, &watched);
	int rc = validation_loss(validation, &job->loss[comm_rank(comm)], err);
	validation_destroy(validation);
	fixture_close(&f);
	if (rc == 0 && comm_size(comm) == 1)
		WORLD_CHECK(watched == (int)job->samples);
	return rc;
}

static void every_sample_counts_once_in_every_world(void **state)
{
	double *loss = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job job = { .data = dataset_open_table(features, classes, NULL),
		.vocabulary = fixture_mlp.classes,
		.loss = loss };
	struct world_rank ranks[WORLD_MAX];
	assert_non_null(job.data);
	assert_int_equal(dataset_samples(job.data), ROWS);
	double first[ROWS + 1] = { 0 };
	for (job.samples = 1; job.samples <= ROWS; job.samples += ROWS - 1)
		for (int world = 1; world <= 5; world += 1 + world / 3) {
			world_run(world, 20, validate, &job, ranks);
			world_assert_ok(world, ranks);
			if (world == 1)
				first[job.samples] = loss[0];
			for (int rank = 0; rank < world; rank++)
				assert_memory_equal(&loss[rank], &first[job.samples], sizeof loss[0]);
		}
	/* Only now: threads of this process would not be there in a fork of it. */
	for (job.samples = 1; job.samples <= ROWS; job.samples += ROWS - 1)
		assert_true(fabs(first[job.samples] / expected(&job) - 1) < 1e-6);
	dataset_close(job.data);
	munmap(loss, 4096);
}

/* Classes 3 and 4 are not there: rank 0 finds one in the first microbatch, and says it to all. */
static void a_sample_that_cannot_be_read_is_an_error_of_all(void **state)
{
	double loss[2];
	struct job job = { .data = dataset_open_table(features, classes, NULL),
		.samples = ROWS,
		.vocabulary = 3,
		.loss = loss };
	struct world_rank ranks[WORLD_MAX];
	for (int world = 1; world <= 2; world++) {
		const char *words = world == 1 ? "y1.npy is not one of the 3 classes"
									   : "validation: rank 0 couldn't read its samples";
		world_run(world, 20, validate, &job, ranks);
		for (int rank = 0; rank < world; rank++) {
			assert_int_equal(ranks[rank].rc, ERR_SHARED);
			assert_int_equal(ranks[rank].err.status, EXIT_DATA);
			if (!strstr(ranks[rank].err.text, words))
				fail_msg("%s", ranks[rank].err.text);
		}
	}
	dataset_close(job.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First, for the other one leaves threads, which are not there in a fork. */
		cmocka_unit_test(a_sample_that_cannot_be_read_is_an_error_of_all),
		cmocka_unit_test(every_sample_counts_once_in_every_world),
	};
	return cmocka_run_group_tests(tests, write_tables, files_teardown);
}
