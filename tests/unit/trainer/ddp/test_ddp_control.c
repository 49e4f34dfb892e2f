/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks tell each other with each step: faults, flags, hashes that differ; and ranks that
 * do not fit together. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/trainer/comm/world_fixture.h"
#include "tests/unit/trainer/ddp/ddp_work.h"
#include "trainer/ddp/ddp.h"

/* Rank 1 can't read its data and skips its slots: all learn it, nobody waits. */
static int body_fault(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_control control = ddp_work_control(comm, 5);
	struct ddp_result result;

	if (!ddp)
		return -1;
	ddp_begin(ddp, 5);
	if (comm_rank(comm) == 1) {
		control.fault = EXIT_DATA;
		control.stop = 1;
	} else {
		for (int slot = 0; slot < ddp_slot_count(ddp); slot++)
			ddp_work_train_slot(ddp, job, 5, ddp_first_slot(ddp) + slot);
	}
	if (ddp_finish(ddp, &control, &result, err) < 0)
		return -1;
	WORLD_CHECK(result.fault == EXIT_DATA && result.fault_rank == 1 && result.stop == 1);
	ddp_destroy(ddp);
	return 0;
}

static void test_fault(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 7, 300000, 0);
	world_run(3, 30, body_fault, &job, ranks);
	world_assert_ok(3, ranks);
	ddp_work_free(&job);
}

enum oddity { ODD_STEP, ODD_SLOTS, ODD_TABLE, DEATH };

struct odd_job {
	struct ddp_work job;
	enum oddity oddity;
};

static int body_odd(struct comm *comm, void *arg, struct err *err)
{
	struct odd_job *odd = arg;
	struct ddp_control control = ddp_work_control(comm, 9);
	struct ddp_result result;
	int me = comm_rank(comm);

	if (odd->oddity == ODD_SLOTS && me == 1)
		odd->job.slots = 16;
	if (odd->oddity == ODD_TABLE && me == 1)
		odd->job.table.rows[2].name[0] = 'F';
	if (odd->oddity == ODD_STEP && me == 1)
		control.step = 10;
	struct ddp *ddp = ddp_work_create(comm, &odd->job, err);
	if (!ddp)
		return -1;
	if (odd->oddity == DEATH && me == 1)
		raise(SIGKILL);
	int rc = ddp_work_run_step(ddp, &odd->job, 9, control, &result, err);
	ddp_destroy(ddp);
	return rc;
}

static void check_odd(enum oddity oddity, enum exit_status status, const char *const *words)
{
	struct world_rank ranks[WORLD_MAX];
	struct odd_job odd = { .oddity = oddity };

	ddp_work_make(&odd.job, 8, 300000, 0);
	world_run(3, 30, body_odd, &odd, ranks);
	for (int i = 0; i < 3; i++) {
		if (oddity == DEATH && i == 1)
			continue;
		print_message("# rank %d: %s\n", i, ranks[i].err.text);
		assert_int_equal(ranks[i].signal, 0);
		assert_int_equal(ranks[i].rc, -1);
		assert_int_equal(ranks[i].err.status, status);
		for (const char *const *word = words; *word; word++)
			if (!strstr(ranks[i].err.text, *word))
				fail_msg("\"%s\" is not in: %s", *word, ranks[i].err.text);
	}
	ddp_work_free(&odd.job);
}

static void test_oddities(void **state)
{
	check_odd(ODD_STEP, EXIT_FAULT,
		(const char *[]) { "rank 1 at step 10", "rank 0 is at step 9", NULL });
	check_odd(ODD_SLOTS, EXIT_USAGE,
		(const char *[]) { "--slots is 8 on rank 0 and 16 on rank 1", NULL });
	check_odd(ODD_TABLE, EXIT_USAGE, (const char *[]) { "hash of the tensors", "rank 1", NULL });
	check_odd(DEATH, EXIT_LOST, (const char *[]) { "rank 1 on here", NULL });
}

/* What the ranks tell of their weights or their samples, and who is named for it. */
struct hash_case {
	int world;
	uint64_t hashes[8];
	const char *said;
};

static const struct hash_case drift_cases[] = {
	{ 3, { 0, 0, 0 }, "" },
	{ 3, { 5, 5, 5 }, "" },
	{ 3, { 5, 6, 5 }, "rank 1 on here" },
	{ 3, { 6, 5, 5 }, "rank 0 on here" },
	{ 5, { 5, 7, 5, 6, 5 }, "rank 1 on here, rank 3 on here" },
	{ 2, { 5, 6 }, "rank 1 on here (or the others: no more than half of the ranks agree)" },
	{ 4, { 6, 5, 7, 5 },
		"rank 0 on here, rank 2 on here (or the others: no more than half of the ranks agree)" },
	{ 8, { 1, 2, 3, 4, 5, 6, 7, 8 },
		"rank 1 on here, rank 2 on here, rank 3 on here, rank 4 on here and 3 more (or the others: "
		"no more than half of the ranks agree)" },
};

struct hash_job {
	struct ddp_work job;
	const struct hash_case *told;
};

static int body_drift(struct comm *comm, void *arg, struct err *err)
{
	struct hash_job *drift = arg;
	struct ddp_control control = ddp_work_control(comm, 9);
	struct ddp_result result;
	int me = comm_rank(comm);

	control.weights_hash = drift->told->hashes[me];
	struct ddp *ddp = ddp_work_create(comm, &drift->job, err);
	if (!ddp || ddp_work_run_step(ddp, &drift->job, 9, control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	if (strcmp(result.drifted, drift->told->said) != 0)
		return err_set(err, "said '%s', not '%s'", result.drifted, drift->told->said);
	WORLD_CHECK(!result.drift_here || result.drifted[0]);
	WORLD_CHECK(drift->told->world != 3 || !result.drifted[0]
		|| result.drift_here == (result.drifted[5] == '0' + me));
	return 0;
}

static const struct hash_case sample_cases[] = {
	{ 3, { 5, 6, 7 }, "" },
	{ 3, { 0, 0, 7 }, "" }, /* ranks without a sample in the last step of an epoch */
	{ 4, { 9, 5, 7, 5 }, "rank 1 on here, rank 3 on here" },
	{ 5, { 9, 5, 9, 0, 5 }, "rank 0 on here, rank 1 on here, rank 2 on here, rank 4 on here" },
	{ 3, { 5, 5, 5 }, "rank 0 on here, rank 1 on here, rank 2 on here (all ranks)" },
	{ 8, { 5, 5, 5, 5, 5, 5, 5, 6 },
		"rank 0 on here, rank 1 on here, rank 2 on here, rank 3 on here and 3 more" },
};

static int body_samples(struct comm *comm, void *arg, struct err *err)
{
	struct hash_job *samples = arg;
	struct ddp_control control = ddp_work_control(comm, 9);
	struct ddp_result result;

	control.sample_hash = samples->told->hashes[comm_rank(comm)];
	struct ddp *ddp = ddp_work_create(comm, &samples->job, err);
	if (!ddp || ddp_work_run_step(ddp, &samples->job, 9, control, &result, err) < 0)
		return -1;
	ddp_destroy(ddp);
	if (strcmp(result.same_samples, samples->told->said) != 0)
		return err_set(err, "said '%s', not '%s'", result.same_samples, samples->told->said);
	return 0;
}

static void run_hashes(world_body *body, const struct hash_case *cases, size_t count)
{
	struct world_rank ranks[WORLD_MAX];

	for (size_t i = 0; i < count; i++) {
		struct hash_job hashes = { .told = &cases[i] };

		ddp_work_make(&hashes.job, 8, 300000, 0);
		world_run(cases[i].world, 30, body, &hashes, ranks);
		world_assert_ok(cases[i].world, ranks);
		ddp_work_free(&hashes.job);
	}
}

static void test_drift(void **state)
{
	run_hashes(body_drift, drift_cases, sizeof drift_cases / sizeof drift_cases[0]);
}

static void test_same_samples(void **state)
{
	run_hashes(body_samples, sample_cases, sizeof sample_cases / sizeof sample_cases[0]);
}

/* The step is given up with buckets in flight: the gradients go away only after them, and the peers
 * are told. */
static int body_given_up(struct comm *comm, void *arg, struct err *err)
{
	struct ddp_work *job = arg;
	struct ddp *ddp = ddp_work_create(comm, job, err);
	struct ddp_control control = ddp_work_control(comm, 0);
	struct ddp_result result;

	if (comm_rank(comm) == 1) {
		if (!ddp)
			return -1;
		ddp_begin(ddp, 0);
		ddp_work_train_slot(ddp, job, 0, ddp_first_slot(ddp));
		ddp_destroy(ddp);
		return 0;
	}
	/* On a busy machine rank 1 is gone before the others are through with the comparison of the
	 * ranks. */
	int rc = ddp ? ddp_work_run_step(ddp, job, 0, control, &result, err) : -1;
	ddp_destroy(ddp);
	WORLD_CHECK(rc < 0 && err->status == EXIT_LOST);
	WORLD_CHECK(strstr(err->text, "rank 1 on here") && strstr(err->text, "the step was given up"));
	return 0;
}

static void test_given_up(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 3, 100000, 0);
	world_run(3, 30, body_given_up, &job, ranks);
	world_assert_ok(3, ranks);
	ddp_work_free(&job);
}

static int body_too_many(struct comm *comm, void *arg, struct err *err)
{
	struct ddp *ddp = ddp_work_create(comm, arg, err);

	WORLD_CHECK(!ddp);
	WORLD_CHECK(err->status == EXIT_USAGE);
	WORLD_CHECK(strstr(err->text, "at most 3 ranks") && strstr(err->text, "--slots 4"));
	return 0;
}

static void test_too_many_ranks(void **state)
{
	struct world_rank ranks[WORLD_MAX];
	struct ddp_work job;

	ddp_work_make(&job, 3, 300000, 0);
	world_run(4, 30, body_too_many, &job, ranks);
	world_assert_ok(4, ranks);
	ddp_work_free(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_oddities),
		cmocka_unit_test(test_drift),
		cmocka_unit_test(test_same_samples),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_too_many_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
