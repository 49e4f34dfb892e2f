/* SPDX-License-Identifier: Apache-2.0 */
/* removable: what is being read stays, in whatever process, and so does the last one that is whole.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "checkpoint/directory/owner.h"
#include "checkpoint/directory/removable.h"
#include "checkpoint/directory/remove.h"
#include "checkpoint/directory/retention.h"
#include "checkpoint/load/ckpt.h"
#include "checkpoint/save/ckpt_save.h"
#include "tests/tools/ckpt_sample.h"
#include "tests/unit/files.h"
#include "tests/unit/quiet.h"

static struct ckpt_dir dir;
static struct owner owner;

static void begin(const char *name, int64_t last)
{
	struct err err;
	owner = (struct owner) { 0 };
	if (ckpt_dir_open(&dir, files_path(name), &err) < 0
		|| owner_claim(&dir, &owner, NULL, NULL, 5, &err) < 0)
		fail_msg("%s", err.text);
	for (int64_t step = 1; step <= last; step++) {
		struct ckpt_sample sample;
		ckpt_sample_fill(&sample, step);
		if (ckpt_save(&dir, &sample.snapshot, owner.token, NULL, NULL, &err) < 0)
			fail_msg("%s", err.text);
	}
}

static struct ckpt *open_step(int64_t step)
{
	struct ckpt *ckpt;
	struct err err;
	if (ckpt_open(&dir, step, 0, &ckpt, &err) < 0)
		fail_msg("%s", err.text);
	return ckpt;
}

static void stays(int64_t step, const char *why)
{
	struct err err = { 0 };
	assert_int_equal(remove_step(&dir, step, owner.token, &err), 1);
	if (!strstr(err.text, why))
		fail_msg("\"%s\", not \"%s\"", err.text, why);
}

static void goes(int64_t step)
{
	struct err err;
	char name[CKPT_STEP_NAME_SIZE];
	if (remove_step(&dir, step, owner.token, &err) != 0)
		fail_msg("%s", err.text);
	assert_int_equal(faccessat(dir.fd, ckpt_step_name(step, name), F_OK, 0), -1);
}

static void what_is_read_stays_until_it_is_closed(void **state)
{
	begin("read", 3);
	struct ckpt *one = open_step(1), *again = open_step(1);
	struct err err;
	stays(1, "it is being read");
	goes(2);
	ckpt_close(one);
	stays(1, "it is being read");
	/* Retention passes over it. */
	assert_int_equal(remove_expired(&dir, &(struct retention) { .keep_last = 1 }, owner.token,
						 &err),
		0);
	assert_int_equal(ckpt_sample_check(again, 1, &err), 0);
	ckpt_close(again);
	goes(1);
	ckpt_dir_close(&dir);
}

/* A reader of another process holds it, and one that is killed does not for ever. */
static void a_dead_reader_holds_nothing(void **state)
{
	int ready[2];
	char byte = 0;
	begin("process", 2);
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_step(1);
		if (write(ready[1], &byte, 1) == 1)
			pause();
		_exit(1);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	stays(1, "it is being read");
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, NULL, 0), child);
	goes(1);
	close(ready[0]);
	close(ready[1]);
	ckpt_dir_close(&dir);
}

static void who_comes_while_it_is_removed_does_not_get_it(void **state)
{
	struct ckpt *ckpt;
	struct err err;
	int lock;
	begin("removed", 2);
	assert_int_equal(removable_check(&dir, 1, &lock, &err), 1);
	assert_true(lock >= 0);
	assert_int_equal(ckpt_open(&dir, 1, 0, &ckpt, &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_non_null(strstr(err.text, "is being removed"));
	/* He had opened the manifest before, and gets the lock when it is over. */
	int folder = openat(dir.fd, "step-00000001", O_RDONLY),
		late = openat(folder, "manifest.json", O_RDONLY);
	close(lock);
	goes(1);
	assert_int_equal(removable_hold(&dir, "step-00000001", folder, late, &err), -1);
	assert_non_null(strstr(err.text, "is being removed"));
	close(late);
	close(folder);
	ckpt_dir_close(&dir);
}

static void the_last_whole_one_stays(void **state)
{
	begin("last", 4);
	stays(4, "no newer one is known to be whole");
	assert_int_equal(truncate(files_path("last/step-00000004/config.json"), 1), 0);
	assert_int_equal(unlinkat(dir.fd, "step-00000003/model-00001-of-00001.safetensors", 0), 0);
	stays(2, "no newer one is known to be whole");
	goes(1);
	assert_int_equal(unlinkat(dir.fd, "step-00000003/manifest.json", 0), 0);
	stays(2, "no newer one is known to be whole");
	stays(3, "no newer one is known to be whole");
	ckpt_dir_close(&dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_read_stays_until_it_is_closed),
		cmocka_unit_test(a_dead_reader_holds_nothing),
		cmocka_unit_test(who_comes_while_it_is_removed_does_not_get_it),
		cmocka_unit_test(the_last_whole_one_stays),
	};
	quiet_log();
	return cmocka_run_group_tests_name("removable", tests, files_setup, files_teardown);
}
