/* SPDX-License-Identifier: Apache-2.0 */
/* last_words: what a task logged is found though SIGKILL ended it; what it writes else, or closes,
 * harms nobody. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/last_words.h"
#include "common/log.h"

static int memory;
static char value[100];

static int begin(void **state)
{
	memory = last_words_make(3);
	return memory < 0 || last_words_hand_on(memory, 1, value, sizeof value) < 0;
}

static const char *said(int slot)
{
	static char words[LAST_WORDS_MAX + 1];
	memset(words, 'x', sizeof words);
	last_words_read(memory, slot, words);
	return words;
}

static void ignore(void *arg, enum log_level level, const char *line) {}

static void a_killed_task_is_heard(void **state)
{
	int status;
	assert_string_equal(said(1), "");
	pid_t pid = fork();
	if (pid == 0) {
		setenv(LAST_WORDS_VARIABLE, value, 1);
		log_set_writer(ignore, NULL);
		log_keep_last();
		log_error(
			"data: couldn't read a\tfile, a long line that the next one must not show the end of");
		log_debug("not logged");
		log_info("step 120");
		raise(SIGKILL);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status));
	assert_string_equal(said(1), "step 120");
	assert_string_equal(said(0), "");
	assert_string_equal(said(2), "");
}

static void progress_is_heard_whatever_is_said_later(void **state)
{
	char line[1000];
	int status;
	assert_false(last_words_progressed(memory, 3));
	memset(line, '\1', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	pid_t pid = fork();
	if (pid == 0) {
		struct last_words words = last_words_open(value);
		last_words_write(&words, line);
		bool early = last_words_progressed(memory, 3);
		last_words_say_progress(&words);
		last_words_write(&words, line);
		last_words_say_result(&words);
		_exit(early);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	assert_true(last_words_progressed(memory, 3));
	assert_true(last_words_progressed(memory, 2));
	assert_false(last_words_progressed(memory, 1));
}

static void lines_are_cut_and_made_printable(void **state)
{
	char line[1000];
	struct last_words words = last_words_open(value);
	assert_true(words.fd >= 0);
	memset(line, 'a', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	last_words_write(&words, line);
	assert_int_equal(strlen(said(1)), LAST_WORDS_MAX);
	assert_string_equal(said(2), "");
	last_words_write(&words, "a\033[1m\n\xff b");
	assert_string_equal(said(1), "a?[1m?? b");
}

static void the_memory_keeps_its_size(void **state)
{
	struct last_words words = last_words_open(value);
	assert_int_equal(ftruncate(words.fd, 0), -1);
	assert_int_equal(ftruncate(words.fd, 1 << 20), -1);
	assert_string_equal(said(1000), "");
}

static void another_descriptor_is_left_alone(void **state)
{
	char other[100];
	int fd = last_words_open(value).fd, kept = dup(fd), file = open("/dev/null", O_WRONLY);
	static const char *const bad[] = { "", "1", "1:2", "1:2:3:4", "-1:2:3", "x:y:z", "1:2:-256",
		"9999:1:0" };
	dup2(file, fd);
	assert_int_equal(last_words_open(value).fd, -1);
	close(fd);
	assert_int_equal(last_words_open(value).fd, -1);
	dup2(kept, fd);
	assert_int_equal(last_words_open(value).fd, fd);
	snprintf(other, sizeof other, "%.*s:700", (int)(strrchr(value, ':') - value), value);
	assert_int_equal(last_words_open(other).fd, -1); /* reaches over the end */
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(last_words_open(bad[i]).fd, -1);
	assert_int_equal(last_words_open(NULL).fd, -1);
}

/* Only what the task itself says: a program that a shell has run before is another process. */
static void a_status_that_is_a_result(void **state)
{
	int status;
	char line[1000];
	memset(line, 'a', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	assert_int_equal(last_words_result_of(memory, 1), 0);
	pid_t pid = fork();
	if (pid == 0) {
		setenv(LAST_WORDS_VARIABLE, value, 1);
		log_set_writer(ignore, NULL);
		log_keep_last();
		log_status_is_result();
		log_error("%s", line);
		log_remember("kept, and not logged");
		_exit(3);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(last_words_result_of(memory, 1), pid);
	assert_int_equal(last_words_result_of(memory, 0), 0);
	assert_int_equal(last_words_result_of(memory, 2), 0);
	assert_int_equal(last_words_result_of(memory, 1000), 0);
	assert_int_equal(last_words_result_of(-1, 0), 0);
	assert_string_equal(said(1), "kept, and not logged");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_killed_task_is_heard, begin),
		cmocka_unit_test_setup(progress_is_heard_whatever_is_said_later, begin),
		cmocka_unit_test_setup(lines_are_cut_and_made_printable, begin),
		cmocka_unit_test_setup(the_memory_keeps_its_size, begin),
		cmocka_unit_test_setup(a_status_that_is_a_result, begin),
		cmocka_unit_test_setup(another_descriptor_is_left_alone, begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
