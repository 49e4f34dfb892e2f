/* SPDX-License-Identifier: Apache-2.0 */
/* log: levels, tag, writer, and lines that stay whole when threads write at once. */
#include "config.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/log.h"

struct seen {
	int lines;
	enum log_level level;
	char last[5000];
	int torn;
};

static void remember(void *arg, enum log_level level, const char *line)
{
	struct seen *seen = arg;
	seen->lines++;
	seen->level = level;
	snprintf(seen->last, sizeof seen->last, "%s", line);
}

static void drops_what_is_above_the_level(void **state)
{
	struct seen seen = { 0 };
	log_set_writer(remember, &seen);
	log_info("step %d", 7);
	assert_int_equal(seen.lines, 1);
	assert_int_equal(seen.level, LOG_LEVEL_INFO);
	assert_string_equal(seen.last, "step 7");
	log_debug("not by default");
	assert_int_equal(seen.lines, 1);
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("no");
	log_info("no");
	log_error("yes");
	assert_int_equal(seen.lines, 2);
	assert_int_equal(seen.level, LOG_LEVEL_ERROR);
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("yes");
	assert_int_equal(seen.lines, 3);
	log_set_level(LOG_LEVEL_INFO);
	log_set_writer(NULL, NULL);
}

static void long_lines_are_cut(void **state)
{
	struct seen seen = { 0 };
	char text[10000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	log_set_writer(remember, &seen);
	log_info("%s", text);
	log_set_writer(NULL, NULL);
	assert_in_range(strlen(seen.last), 1000, 4999);
	assert_int_equal(strspn(seen.last, "x"), strlen(seen.last));
}

/* The default writer, with standard error on a pipe. Returns what was written. */
static const char *stderr_of(void (*body)(void))
{
	static char text[20000];
	int ends[2], kept = dup(STDERR_FILENO);
	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	body();
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(ends[1]);
	size_t size = 0;
	for (ssize_t n; (n = read(ends[0], text + size, sizeof text - 1 - size)) > 0;)
		size += (size_t)n;
	close(ends[0]);
	text[size] = '\0';
	return text;
}

static void write_tagged(void)
{
	log_info("before");
	log_set_tag("rank %d on %s", 3, "node7");
	log_error("a");
	log_warn("b");
	log_info("c");
	log_set_tag("%s", "");
	log_info("after");
}

static void default_writer_marks_level_and_tag(void **state)
{
	assert_string_equal(stderr_of(write_tagged),
		"muster: before\nmuster: [rank 3 on node7] error: a\n"
		"muster: [rank 3 on node7] warning: b\nmuster: [rank 3 on node7] c\nmuster: after\n");
}

static void write_long(void)
{
	char text[10000], tag[1000];
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	memset(tag, 't', sizeof tag - 1);
	tag[sizeof tag - 1] = '\0';
	log_set_tag("%s", tag);
	log_error("%s", text);
	log_set_tag("%s", "");
}

static void default_writer_ends_long_lines(void **state)
{
	const char *text = stderr_of(write_long);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void check_whole(void *arg, enum log_level level, const char *line)
{
	struct seen *seen = arg;
	seen->lines++; /* not atomic: the log calls one at a time */
	seen->torn += strspn(line, (char[]) { line[0], 0 }) != 100;
}

static void *write_many(void *arg)
{
	char text[101];
	memset(text, *(char *)arg, 100);
	text[100] = '\0';
	for (int i = 0; i < 2000; i++)
		log_info("%s", text);
	return NULL;
}

static void threads_take_turns(void **state)
{
	struct seen seen = { 0 };
	pthread_t threads[4];
	log_set_writer(check_whole, &seen);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_many, &"abcd"[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	log_set_writer(NULL, NULL);
	assert_int_equal(seen.lines, 8000);
	assert_int_equal(seen.torn, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(drops_what_is_above_the_level),
		cmocka_unit_test(long_lines_are_cut),
		cmocka_unit_test(default_writer_marks_level_and_tag),
		cmocka_unit_test(default_writer_ends_long_lines),
		cmocka_unit_test(threads_take_turns),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
