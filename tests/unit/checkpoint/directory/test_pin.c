/* SPDX-License-Identifier: Apache-2.0 */
/* pin: what is pinned stays, whatever retention, a removal under way or one that was cut short
 * would do to it. */
#include "config.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "checkpoint/directory/pin.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/save/ckpt_save.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/checkpoint/save/ckpt_fixture.h"
#include "tests/unit/files.h"

static void save_with_loss(struct ckpt_fixture *run, int64_t step, double validation_loss)
{
	struct ckpt_sample sample;
	struct err err;
	ckpt_sample_fill(&sample, step);
	sample.snapshot.at.validation_loss = validation_loss;
	if (ckpt_save(&run->dir, &sample.snapshot, run->owner.token, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
}

static void the_best_and_the_pinned_stay(void **state)
{
	struct ckpt_fixture run;
	struct err err;
	struct retention policy = { .keep_last = 2, .keep_best = 1 };
	ckpt_fixture_open(&run, files_path("best"));
	save_with_loss(&run, 1, NAN);
	save_with_loss(&run, 2, 0.25);
	save_with_loss(&run, 3, 0.5);
	save_with_loss(&run, 4, NAN);
	save_with_loss(&run, 5, 1.5);
	save_with_loss(&run, 6, NAN);
	assert_int_equal(pin_set(&run.dir, 3, &err), 0);
	assert_int_equal(pin_set(&run.dir, 3, &err), 0);
	assert_int_equal(pin_is_set(run.dir.fd, "step-00000003", &err), 1);
	assert_int_equal(remove_step(&run.dir, 3, run.owner.token, &err), 1);
	assert_int_equal(remove_expired(&run.dir, &policy, run.owner.token, NULL), 0);
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3, 5, 6 }, 4);
	/* What can't be read now may be the best: it stays. */
	assert_int_equal(pin_clear(&run.dir, 3, &err), 0);
	assert_int_equal(pin_clear(&run.dir, 3, &err), 0);
	assert_int_equal(unlinkat(run.dir.fd, ckpt_fixture_in_step(3, "manifest.json"), 0), 0);
	assert_int_equal(mkdirat(run.dir.fd, ckpt_fixture_in_step(3, "manifest.json"), 0755), 0);
	assert_int_equal(remove_expired(&run.dir, &policy, run.owner.token, NULL), 0);
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3, 5, 6 }, 4);
	assert_int_equal(unlinkat(run.dir.fd, ckpt_fixture_in_step(3, "manifest.json"), AT_REMOVEDIR),
		0);
	assert_int_equal(remove_expired(&run.dir, &policy, run.owner.token, NULL), 0);
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 5, 6 }, 3);
	assert_int_equal(pin_set(&run.dir, 4, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_int_equal(run.errors, 0);
	ckpt_fixture_close(&run);
}

/* Killed after the rename: the next owner brings a pinned checkpoint back, and removes one that is
 * not. */
static void a_pinned_one_comes_back_from_a_killed_removal(void **state)
{
	struct ckpt_fixture run;
	struct owner next = { .attempt = 1 };
	char away[2][100];
	ckpt_fixture_open(&run, files_path("killed"));
	for (int64_t step = 1; step <= 3; step++)
		ckpt_fixture_save(&run, step);
	assert_int_equal(pin_set(&run.dir, 2, NULL), 0);
	for (int i = 0; i < 2; i++) {
		char name[CKPT_STEP_NAME_SIZE];
		snprintf(away[i], sizeof away[i], ".removing-%s-%s", ckpt_step_name(i + 1, name),
			run.owner.token);
		assert_int_equal(renameat(run.dir.fd, name, run.dir.fd, away[i]), 0);
	}
	assert_int_equal(owner_release(&run.dir, run.owner.token, NULL), 0);
	assert_int_equal(owner_claim(&run.dir, &next, NULL, NULL, 5, NULL), 0);
	assert_int_equal(remove_leftovers(&run.dir, next.token, NULL), 1);
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3 }, 2);
	assert_false(ckpt_fixture_has(&run, away[0]) || ckpt_fixture_has(&run, away[1]));
	ckpt_fixture_close(&run);
}

/* It is still under the name that the folder of an unfinished save of the same step gets in order
 * to be removed. */
static void a_pinned_one_is_not_removed_for_an_unfinished_save(void **state)
{
	struct ckpt_fixture run;
	char saving[100], away[100];
	ckpt_fixture_open(&run, files_path("twice"));
	ckpt_fixture_save(&run, 2);
	ckpt_fixture_save(&run, 3);
	assert_int_equal(pin_set(&run.dir, 2, NULL), 0);
	snprintf(away, sizeof away, ".removing-step-00000002-%s", run.owner.token);
	snprintf(saving, sizeof saving, ".saving-step-00000002-%s", run.owner.token);
	assert_int_equal(renameat(run.dir.fd, "step-00000002", run.dir.fd, away), 0);
	assert_int_equal(mkdirat(run.dir.fd, saving, 0755), 0);
	assert_int_equal(remove_saving(&run.dir, saving, NULL), 1);
	assert_false(ckpt_fixture_has(&run, saving) || ckpt_fixture_has(&run, away));
	ckpt_fixture_steps_are(&run, (int64_t[]) { 2, 3 }, 2);
	ckpt_fixture_close(&run);
}

/* One thread pins and unpins, this one removes: what pin_set said to be pinned is there afterwards.
 */
struct race {
	struct ckpt_dir *dir;
	int pinned;
};

static void *pin_it(void *arg)
{
	struct race *race = arg;
	race->pinned = pin_set(race->dir, 1, NULL) == 0;
	return NULL;
}

static void a_pin_that_was_set_holds_against_a_removal_under_way(void **state)
{
	struct ckpt_fixture run;
	int kept = 0;
	ckpt_fixture_open(&run, files_path("race"));
	ckpt_fixture_save(&run, 2); /* without a newer one it would stay */
	for (int i = 0; i < 60; i++) {
		struct race race = { .dir = &run.dir };
		pthread_t thread;
		if (!ckpt_fixture_has(&run, "step-00000001"))
			ckpt_fixture_save(&run, 1);
		assert_int_equal(pin_clear(&run.dir, 1, NULL), 0);
		assert_int_equal(pthread_create(&thread, NULL, pin_it, &race), 0);
		usleep((useconds_t)i * 50);
		int removed = remove_step(&run.dir, 1, run.owner.token, NULL);
		pthread_join(thread, NULL);
		if (race.pinned)
			assert_true(removed != 0 && ckpt_fixture_has(&run, "step-00000001/pinned"));
		kept += race.pinned;
	}
	print_message("# %d of 60 pins came in time\n", kept);
	assert_true(kept > 0);
	ckpt_fixture_close(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_and_the_pinned_stay),
		cmocka_unit_test(a_pinned_one_comes_back_from_a_killed_removal),
		cmocka_unit_test(a_pinned_one_is_not_removed_for_an_unfinished_save),
		cmocka_unit_test(a_pin_that_was_set_holds_against_a_removal_under_way),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
