/* SPDX-License-Identifier: Apache-2.0 */
/* first_end: messages that survive the way, strangers' that don't count, and whose failure was the
 * first. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/first_end.h"

#define EXITED(code) ((code) << 8)
#define SECRET "0123456789abcdef0123456789abcdef"

static struct task_report report_of(int rank, int wait_status)
{
	struct task_report report = { .rank = rank, .world = 8, .wait_status = wait_status };
	snprintf(report.node, sizeof report.node, "n%d", rank / 2 + 1);
	return report;
}

static void a_report_arrives_as_it_was_sent(void **state)
{
	char message[END_MESSAGE_MAX];
	struct task_report sent = report_of(5, SIGSEGV | 0x80), got;
	for (int i = 0; i < 2; i++) {
		size_t size = end_write_report(SECRET, &sent, message);
		assert_int_equal(end_read(message, size, SECRET, &got), END_REPORT);
		assert_int_equal(got.rank, 5);
		assert_int_equal(got.world, 8);
		assert_int_equal(got.wait_status, SIGSEGV | 0x80);
		assert_string_equal(got.node, "n3");
		assert_string_equal(got.words, sent.words);
		strcpy(sent.words, "data: couldn't read  a \"b\": 100 % wrong");
	}
	assert_int_equal(end_read(message, end_write_running(SECRET, message), SECRET, &got),
		END_RUNNING);
}

static void a_step_is_told_of_with_its_node(void **state)
{
	char message[END_MESSAGE_MAX], broken[END_MESSAGE_MAX];
	struct task_report got;
	size_t size = end_write_step(SECRET, 4294967295u, "n 3", message);
	assert_int_equal(end_read(message, size, SECRET, &got), END_STEP);
	assert_true(got.step == 4294967295u);
	assert_string_equal(got.node, "n?3");
	static const char *const bad[] = { "step 3", "step 3 ", "step n1", "step 4294967296 n1",
		"step -1 n1", "step 3 n1 n2", "step 3  n1" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		int length = snprintf(broken, sizeof broken, "muster-end 1 " SECRET " %s\n", bad[i]);
		assert_int_equal(end_read(broken, (size_t)length, SECRET, &got), END_BAD);
	}
}

static void the_longest_report_fits(void **state)
{
	char message[END_MESSAGE_MAX], line[600];
	struct task_report sent = { (1 << 24) - 1, 1 << 24, 0xffff, "", "", 0 }, got;
	memset(sent.node, 'n', sizeof sent.node - 1);
	memset(sent.words, 'w', sizeof sent.words - 1);
	size_t size = end_write_report(SECRET, &sent, message);
	assert_true(size < END_MESSAGE_MAX);
	assert_int_equal(end_read(message, size, SECRET, &got), END_REPORT);
	assert_string_equal(got.node, sent.node);
	assert_string_equal(got.words, sent.words);
	struct first_end end = { .running = true };
	first_end_add(&end, &got);
	assert_true(first_end_line(&end, line, sizeof line));
	assert_true(strlen(line) < sizeof line - 1);
}

static void words_become_one_printable_line(void **state)
{
	char message[END_MESSAGE_MAX];
	struct task_report sent = report_of(0, EXITED(1)), got;
	strcpy(sent.words, "a\nb\033[31m\tc\xc3\xa9");
	strcpy(sent.node, "n 1\n");
	assert_int_equal(end_read(message, end_write_report(SECRET, &sent, message), SECRET, &got),
		END_REPORT);
	assert_string_equal(got.words, "a?b?[31m?c??");
	assert_string_equal(got.node, "n?1?");
}

static void what_is_no_message_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"GET / HTTP/1.0\r\n",
		"muster-end 1 \n",
		"muster-end 1 " SECRET "\n",
		"muster-end 1 " SECRET " \n",
		"muster-end 1 " SECRET " running",
		"muster-end 1 " SECRET " running \n",
		"muster-end 1 " SECRET " running\n\n",
		"muster-end 2 " SECRET " running\n",
		"muster-end 1 1123456789abcdef0123456789abcdef running\n",
		"muster-end 1 " SECRET " end\n",
		"muster-end 1 " SECRET " end 0 1 9 n1\n",
		"muster-end 1 " SECRET " end 0 1 9  \n",
		"muster-end 1 " SECRET " end -1 1 9 n1 \n",
		"muster-end 1 " SECRET " end 1 1 9 n1 \n",
		"muster-end 1 " SECRET " end 0 1 0 n1 \n",
		"muster-end 1 " SECRET " end 0 1 65536 n1 \n",
		"muster-end 1 " SECRET " end 0 99999999 9 n1 \n",
		"muster-end 1 " SECRET " end 0 1 9x n1 \n",
		"muster-end 1 " SECRET " end 0 1 9 n1 a\nb\n",
	};
	struct task_report got = report_of(7, 7);
	char node[300];
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(end_read(bad[i], strlen(bad[i]), SECRET, &got), END_BAD);
	int size = snprintf(node, sizeof node, "muster-end 1 " SECRET " end 0 1 9 %065d \n", 0);
	assert_int_equal(end_read(node, (size_t)size, SECRET, &got), END_BAD);
	size = snprintf(node, sizeof node, "muster-end 1 " SECRET " end 0 1 9 n %0201d\n", 0);
	assert_int_equal(end_read(node, (size_t)size, SECRET, &got), END_BAD);
	assert_int_equal(end_read("muster-end 1 " SECRET " running\0\n",
						 sizeof "muster-end 1 " SECRET " running\0\n" - 1, SECRET, &got),
		END_BAD);
	assert_int_equal(got.rank, 7);
}

static void every_part_begins_a_message(void **state)
{
	static const char whole[] = "muster-end 1 " SECRET " end 0 1 9 n1 \n";
	char wrong[sizeof whole];
	assert_false(end_begins("", 0, SECRET));
	for (size_t size = 1; size < sizeof whole; size++) {
		assert_true(end_begins(whole, size, SECRET));
		memcpy(wrong, whole, sizeof wrong);
		wrong[size - 1] ^= 1;
		assert_int_equal(end_begins(wrong, size, SECRET),
			size > strlen("muster-end 1 " SECRET " "));
	}
}

/* Ends of ranks in the order of their arrival, up to the first status of 0; -1: nobody failed. */
static const struct {
	struct {
		int rank, status;
	} ends[5];
	int first;
	bool others;
} cases[] = {
	{ { { 0 } }, -1, false },
	{ { { 5, SIGSEGV } }, 5, true },
	{ { { 5, EXITED(1) }, { 0, SIGTERM }, { 3, SIGKILL } }, 5, true },
	{ { { 5, SIGKILL }, { 4, SIGKILL }, { 0, SIGTERM } }, 5, true },
	{ { { 5, SIGKILL }, { 0, EXITED(1) } }, 5, true }, /* a peer that stumbles over the dead one */
	{ { { 5, EXITED(1) }, { 0, EXITED(1) } }, 5, false },
	{ { { 5, EXITED(1) }, { 2, EXITED(69) }, { 3, SIGTERM } }, 5, true },
	{ { { 2, EXITED(69) }, { 3, SIGTERM }, { 5, EXITED(1) } }, 2, false },
	{ { { 2, EXITED(69) }, { 5, SIGKILL }, { 3, EXITED(69) } }, 2, false },
	{ { { 5, SIGKILL }, { 2, EXITED(69) } }, 5, true },
	{ { { 1, EXITED(75) }, { 2, EXITED(75) } }, -1, false },
	{ { { 1, EXITED(75) }, { 2, SIGKILL } }, -1, false }, /* the end of the grace time */
	{ { { 1, SIGTERM }, { 2, SIGKILL }, { 3, EXITED(69) } }, -1, false },
	{ { { 1, EXITED(75) }, { 2, SIGABRT } }, 2, true },
	{ { { 0, SIGKILL }, { 1, EXITED(75) } }, 0, true },
};

static void the_first_is_judged(void **state)
{
	char line[600], want[40];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct first_end end = { 0 };
		for (int k = 0; k < 5 && cases[i].ends[k].status; k++) {
			struct task_report report = report_of(cases[i].ends[k].rank, cases[i].ends[k].status);
			first_end_add(&end, &report);
		}
		assert_false(
			first_end_line(&end, line, sizeof line)); /* nobody has said that the job was running */
		end.running = true;
		assert_int_equal(first_end_line(&end, line, sizeof line), cases[i].first >= 0);
		if (cases[i].first < 0)
			continue;
		snprintf(want, sizeof want, "rank %d on n%d ", cases[i].first, cases[i].first / 2 + 1);
		assert_int_equal(strncmp(line, want, strlen(want)), 0);
		assert_int_equal(strstr(line, "stopped for it") != NULL, cases[i].others);
	}
}

static void the_line_says_it_all(void **state)
{
	char line[600];
	struct first_end end = { .running = true };
	struct task_report report = report_of(5, SIGKILL);
	strcpy(report.words, "step 120");
	first_end_add(&end, &report);
	assert_true(first_end_line(&end, line, sizeof line));
	assert_string_equal(line,
		"rank 5 on n3 was killed by signal 9 (Killed), the first of 8 ranks to fail; it last said "
		"\"step 120\"; the 7 others were stopped for it");
	end.others_go_on = true;
	assert_true(first_end_line(&end, line, sizeof line));
	assert_string_equal(line,
		"rank 5 on n3 was killed by signal 9 (Killed), the first of 8 ranks to fail; it last said "
		"\"step 120\"");
	end.others_go_on = false;
	end.first.world = 2;
	assert_true(first_end_line(&end, line, sizeof line));
	assert_non_null(strstr(line, "; the other was stopped"));
	end.first.world = 1;
	assert_true(first_end_line(&end, line, sizeof line));
	assert_string_equal(line,
		"rank 5 on n3 was killed by signal 9 (Killed); it last said \"step 120\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_arrives_as_it_was_sent),
		cmocka_unit_test(a_step_is_told_of_with_its_node),
		cmocka_unit_test(the_longest_report_fits),
		cmocka_unit_test(words_become_one_printable_line),
		cmocka_unit_test(what_is_no_message_is_refused),
		cmocka_unit_test(every_part_begins_a_message),
		cmocka_unit_test(the_first_is_judged),
		cmocka_unit_test(the_line_says_it_all),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
