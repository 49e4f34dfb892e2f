/* SPDX-License-Identifier: Apache-2.0 */
/* The list of nodes that a job does not start on, and our note of those that we have put there. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/auto.h"
#include "slurm/leave_out.h"
#include "slurm/requeue.h"

static void joins(const char *list, const char *without, const char *with, const char *result)
{
	AUTO_FREE char *found = leave_out_join(list, without, with);
	assert_non_null(found);
	assert_string_equal(found, result);
}

static void a_list_loses_and_gets_names(void **state)
{
	joins("", NULL, NULL, "");
	joins(NULL, NULL, "n2", "n2");
	joins("n[1-3]", "n2", "n4", "n1,n3,n4");
	joins("n[1-3]", "n[1-3]", NULL, "");
	joins("n1", NULL, "n1", "n1");
	joins("n1", "n1", "n1", "n1"); /* again the same */
	joins("n10", NULL, "n1", "n10,n1");
}

static void says(const char *comment, const char *nodes, int attempt)
{
	char found[100];
	int when;
	assert_int_equal(leave_out_noted(comment, found, sizeof found, &when), nodes != NULL);
	assert_string_equal(found, nodes ? nodes : "");
	assert_int_equal(when, attempt);
}

static void a_note_is_read_back(void **state)
{
	AUTO_FREE char *first = leave_out_note("mine", "n1,n3", 4);
	assert_string_equal(first, "mine; muster: left out n1,n3 after attempt 4");
	says(first, "n1,n3", 4);
	AUTO_FREE char *second = leave_out_note(first, "n7", 5);
	assert_string_equal(second, "mine; muster: left out n7 after attempt 5");
	AUTO_FREE char *none = leave_out_note(second, "", 6);
	assert_string_equal(none, "mine");
	says(none, NULL, -1);
	says("", NULL, -1);
	says("muster: left out n1", NULL, -1);
	says("muster: left out n1, n2 after attempt 3", NULL, 3);
	AUTO_FREE char *alone = leave_out_note("", "n1", 0);
	assert_string_equal(alone, "muster: left out n1 after attempt 0");
}

/* Whatever is noted first, each of our notes is read back, and the user's text stays. */
static void notes_stay_beside_each_other(void **state)
{
	const struct requeue_end end = { .attempt = 5, .step = 2, .when = 100 };
	for (int order = 0; order < 6; order++) {
		static const char orders[6][4] = { "lce", "lec", "cle", "cel", "elc", "ecl" };
		char *comment = strdup("mine; too");
		for (const char *kind = orders[order]; *kind; kind++) {
			char *next = *kind == 'l' ? leave_out_note(comment, "n2", 5)
				: *kind == 'c'        ? requeue_count(comment, 2, 5)
									  : requeue_note(comment, &end, "rank 1: \"no\"");
			free(comment);
			comment = next;
		}
		assert_int_equal(strncmp(comment, "mine; too; muster: ", 19), 0);
		says(comment, "n2", 5);
		assert_true(requeue_is_counted(comment, 5));
		assert_true(requeue_noted(comment, &end));
		free(comment);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_loses_and_gets_names),
		cmocka_unit_test(a_note_is_read_back),
		cmocka_unit_test(notes_stay_beside_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
