/* SPDX-License-Identifier: Apache-2.0 */
/* The program that hears of spot notices, as a rank has it: one that tells, one that is silent, one
 * that ends, one that does not, and none at all. Scripts take its place. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/notice.h"
#include "launch/spot_watch.h"

#define PAGE "http://127.0.0.1:1/notice"
#define HANG_SECONDS 60

static const struct ident first = { .local_rank = 0, .local_world_size = 2 },
						  second = { .local_rank = 1, .local_world_size = 2 };
static char folder[] = "/tmp/test-spot-watch-XXXXXX";
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char warned[400]; /* the last warning, of any thread */

static void set_warning(const char *line)
{
	pthread_mutex_lock(&lock);
	snprintf(warned, sizeof warned, "%s", line);
	pthread_mutex_unlock(&lock);
}

static bool has_warned(const char *words)
{
	pthread_mutex_lock(&lock);
	bool found = strstr(warned, words) != NULL;
	pthread_mutex_unlock(&lock);
	return found;
}

static void keep_warning(void *arg, enum log_level level, const char *line)
{
	if (level == LOG_LEVEL_WARN)
		set_warning(line);
}

/* From now on muster-notice is this script. */
static void script(const char *body)
{
	FILE *file = fopen("fake-bin/new", "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\necho $$ >pid\n%s\n", body);
	fclose(file);
	chmod("fake-bin/new", 0755);
	rename("fake-bin/new", "fake-bin/muster-notice");
	set_warning("");
	unlink("pid");
}

static void begin(void)
{
	struct err err;
	assert_int_equal(spot_watch_begin(&first, PAGE, &err), 0);
}

static void wait_for_file(const char *path)
{
	struct deadline end = deadline_in(HANG_SECONDS);
	while (access(path, F_OK) != 0)
		assert_true(deadline_sleep(end, 0.01));
}

static void wait_for_warning(const char *words)
{
	struct deadline end = deadline_in(HANG_SECONDS);
	while (!has_warned(words))
		assert_true(deadline_sleep(end, 0.01));
}

/* Whether the process that the script was is gone. */
static void is_gone(void)
{
	int pid = 0;
	FILE *file = fopen("pid", "r");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%d", &pid), 1);
	fclose(file);
	assert_int_equal(kill(pid, 0), -1);
	assert_int_equal(errno, ESRCH);
}

static void a_missing_program_is_an_error_only_where_it_is_asked_for(void **state)
{
	struct err err;
	assert_int_equal(spot_watch_begin(&second, PAGE, &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
	assert_non_null(strstr(err.text, "fake-bin/muster-notice"));
	assert_int_equal(spot_watch_begin(&first, "off", &err), 0);
	assert_int_equal(spot_watch_begin(&first, "auto", &err), 0);
	spot_watch_end(true);
}

static void what_it_asks_is_what_was_given(void **state)
{
	struct err err;
	script("echo \"$*\" >given.new && mv given.new given; cat >/dev/null");
	begin();
	/* One is enough. */
	assert_int_equal(spot_watch_begin(&first, PAGE, &err), 0);
	wait_for_file("given");
	char given[100] = "";
	FILE *file = fopen("given", "r");
	assert_non_null(file);
	assert_non_null(fgets(given, sizeof given, file));
	fclose(file);
	assert_string_equal(given, PAGE "\n");
	spot_watch_end(true);
	is_gone();
	assert_int_equal(notice_signal(), 0);
	assert_false(has_warned("spot"));
	/* Only the first rank of a node listens. */
	unlink("given");
	assert_int_equal(spot_watch_begin(&second, PAGE, &err), 0);
	spot_watch_end(true);
	assert_int_equal(access("given", F_OK), -1);
}

static void one_that_ends_is_told(void **state)
{
	script("exit 3");
	begin();
	wait_for_warning("has ended");
	spot_watch_end(true);
	is_gone();
}

static void one_that_does_not_end_is_killed(void **state)
{
	script("trap '' TERM; while :; do sleep 0.1; done");
	begin();
	wait_for_file("pid");
	spot_watch_end(false);
	is_gone();
}

static void a_notice_is_given_and_the_word_goes_back(void **state)
{
	struct deadline end = deadline_in(HANG_SECONDS);
	script("echo 'notice the end is near'\n"
		   "read word && echo \"$word\" >heard && echo acknowledged; cat >/dev/null");
	begin();
	while (notice_signal() == 0)
		assert_true(deadline_sleep(end, 0.01));
	assert_int_equal(notice_signal(), NOTICE_SPOT);
	assert_string_equal(notice_name(NOTICE_SPOT), "a spot notice");
	assert_true(has_warned("this node is taken away (the end is near)"));
	assert_int_equal(access("heard", F_OK), -1);
	spot_watch_end(true);
	assert_int_equal(access("heard", F_OK), 0);
	is_gone();
	unlink("heard");
	/* A rank that saved nothing sends no word. */
	set_warning("");
	begin();
	wait_for_warning("taken away");
	spot_watch_end(false);
	is_gone();
	assert_int_equal(access("heard", F_OK), -1);
}

static int go_there(void **state)
{
	log_set_writer(keep_warning, NULL);
	return mkdtemp(folder) && chdir(folder) == 0 && mkdir("fake-bin", 0755) == 0 ? 0 : -1;
}

static int leave(void **state)
{
	static const char *const files[] = { "fake-bin/muster-notice", "pid", "given", "heard" };
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		unlink(files[i]);
	rmdir("fake-bin");
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_missing_program_is_an_error_only_where_it_is_asked_for),
		cmocka_unit_test(what_it_asks_is_what_was_given),
		cmocka_unit_test(one_that_ends_is_told),
		cmocka_unit_test(one_that_does_not_end_is_killed),
		cmocka_unit_test(a_notice_is_given_and_the_word_goes_back),
	};
	return cmocka_run_group_tests(tests, go_there, leave);
}
