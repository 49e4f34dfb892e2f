/* SPDX-License-Identifier: Apache-2.0 */
/* restart: who gets the next step, and the srun that starts it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/auto.h"
#include "restart/command.h"
#include "restart/nodes.h"

static void says(const struct nodes *nodes, enum node_kind kind, const char *want)
{
	AUTO_FREE char *list = nodes_list(nodes, kind);
	assert_string_equal(list, want);
}

static void the_first_that_are_left_get_the_step(void **state)
{
	struct nodes nodes;
	struct err err;
	assert_int_equal(nodes_read(&nodes, "n[1-4],m07", &err), 0);
	assert_int_equal(nodes.count, 5);
	assert_int_equal(nodes_choose(&nodes, 3), 3);
	says(&nodes, NODES_USED, "n1,n2,n3");
	says(&nodes, NODES_OUT, "");
	/* Spares are unsure too: nothing has been heard of them. */
	nodes_find(&nodes, "n1")->heard = true;
	says(&nodes, NODES_UNSURE, "n2,n3,n4,m07");
	nodes_find(&nodes, "n2")->out = true;
	assert_null(nodes_find(&nodes, "n5"));
	says(&nodes, NODES_UNSURE, "n3,n4,m07");
	assert_int_equal(nodes_left(&nodes), 4);
	assert_int_equal(nodes_choose(&nodes, 3), 3);
	says(&nodes, NODES_USED, "n1,n3,n4");
	says(&nodes, NODES_OUT, "n2");
	says(&nodes, NODES_UNSURE, "n1,n3,n4,m07"); /* what was heard was of the step before */
	nodes_find(&nodes, "n3")->out = nodes_find(&nodes, "n1")->out = true;
	assert_int_equal(nodes_choose(&nodes, 3), 2);
	says(&nodes, NODES_USED, "n4,m07");
	nodes_free(&nodes);
	assert_int_equal(nodes_read(&nodes, "n[", &err), -1);
	assert_int_equal(err.status, EXIT_USAGE);
}

static void all_nodes_have_as_many_tasks(void **state)
{
	assert_int_equal(nodes_tasks_each("2(x4)"), 2);
	assert_int_equal(nodes_tasks_each("8"), 8);
	static const char *const bad[] = { "", "2,3", "2(x4),1", "0", "-1", "2(x0)", "x", "2(x4" };
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(nodes_tasks_each(bad[i]), -1);
}

static void options_that_choose_nodes_are_refused(void **state)
{
	static const char *const bad[] = { "-N4", "-n", "-w", "--nodes=2", "--ntasks", "--nodelist=n1",
		"--exclude=n1", "-x", "-r1", "--relative=1" };
	static const char *const good[] = { "--ntasks-per-core=1", "--nodes-are-fine", "-l",
		"--gpus-per-task=1", "--mpi=pmix", "-u" };
	struct err err;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		char *argv[] = { "srun", "-l", (char *)bad[i], "prog", NULL };
		assert_int_equal(command_check(argv, &err), -1);
		assert_int_equal(err.status, EXIT_USAGE);
		assert_non_null(strstr(err.text, bad[i]));
	}
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		char *argv[] = { "/usr/bin/srun", (char *)good[i], "prog", "-n", "4", NULL };
		assert_int_equal(command_check(argv, &err), 0);
	}
	char *other[] = { "mpirun", "prog", NULL }, *none[] = { NULL };
	assert_int_equal(command_check(other, &err), -1);
	assert_int_equal(command_check(none, &err), -1);
}

static void our_options_come_before_the_user_s(void **state)
{
	char *argv[] = { "srun", "-l", "prog", "a b", NULL };
	const char *first[] = { "srun", "--nodes=2", "--ntasks=6", "--nodelist=n1,n3", "-l", "prog",
		"a b", NULL };
	const char *again[] = { "srun", "--nodes=2", "--ntasks=6", "--nodelist=n1,n3", "--overlap",
		"-l", "prog", "a b", NULL };
	struct command_step step = { "n1,n3", 2, 6, false };
	for (int i = 0; i < 2; i++) {
		const char **want = i ? again : first;
		AUTO_FREE char *text = NULL;
		step.again = i;
		AUTO_FREE char **made = command_make(argv, &step, &text);
		for (int word = 0; want[word]; word++)
			assert_string_equal(made[word], want[word]);
		assert_null(made[i ? 8 : 7]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_that_are_left_get_the_step),
		cmocka_unit_test(all_nodes_have_as_many_tasks),
		cmocka_unit_test(options_that_choose_nodes_are_refused),
		cmocka_unit_test(our_options_come_before_the_user_s),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
