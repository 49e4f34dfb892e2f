/* SPDX-License-Identifier: Apache-2.0 */
/* A forgotten srun is told from what is meant so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/alone.h"

/* Pairs of name and value, NULL at the end. */
static const char *table_env(const char *name, void *arg)
{
	for (const char *const *row = arg; row[0]; row += 2)
		if (strcmp(row[0], name) == 0)
			return row[1];
	return NULL;
}

static char what[400];

static bool alone(const char *const *table)
{
	struct ident ident;
	struct err err;
	memset(what, 'x', sizeof what - 1);
	assert_int_equal(ident_decide(&ident, NULL, table_env, (void *)table, &err), 0);
	return alone_in_job(&ident, table_env, (void *)table, what, sizeof what);
}

static void a_script_of_a_larger_job(void **state)
{
	const char *const script[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "4", "SLURM_NTASKS",
		"8", "SLURM_PROCID", "0", "SLURMD_NODENAME", "n1", NULL };
	assert_true(alone(script));
	assert_string_equal(what,
		"this process runs alone on n1, outside of the steps of job 7, which has 4 nodes and 8 "
		"tasks");
	/* As newer releases say it, and without a number of tasks at all. */
	const char *const newer[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "2",
		"SLURM_NTASKS_PER_NODE", "3", "SLURM_STEP_ID", "-5", "SLURM_PROCID", "0", NULL };
	assert_true(alone(newer));
	assert_non_null(strstr(what, "2 nodes and 6 tasks"));
	const char *const nodes[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "2", NULL };
	assert_true(alone(nodes));
	assert_non_null(strstr(what, "2 nodes and 2 tasks"));
	const char *const node[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "1", "SLURM_NTASKS",
		"2", NULL };
	assert_true(alone(node));
	assert_non_null(strstr(what, "1 node and 2 tasks"));
}

static void the_shell_of_salloc_on_a_node(void **state)
{
	const char *const shell[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "2", "SLURM_NTASKS",
		"4", "SLURM_STEP_ID", "4294967290", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1",
		NULL };
	assert_true(alone(shell));
}

static void what_is_meant_so(void **state)
{
	const char *const one[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "1", "SLURM_NTASKS",
		"1", NULL };
	const char *const none[] = { NULL };
	/* A step of one task, in a larger job; a worker of torchrun, started in the script. */
	const char *const step[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "4", "SLURM_NTASKS",
		"8", "SLURM_STEP_ID", "0", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1", NULL };
	const char *const worker[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "1", "SLURM_NTASKS",
		"8", "RANK", "0", "WORLD_SIZE", "1", "TORCHELASTIC_RUN_ID", "x", NULL };
	const char *const hostile[] = { "SLURM_JOB_ID", "7", "SLURM_JOB_NUM_NODES", "99999999999999",
		"SLURM_NTASKS", "-3", NULL };
	assert_false(alone(one));
	assert_false(alone(none));
	assert_false(alone(step));
	assert_false(alone(worker));
	assert_false(alone(hostile));
}

static void launchers_that_start_ranks_themselves(void **state)
{
	static const char *const named[] = { "mpirun", "/usr/bin/mpirun.openmpi",
		"#!/bin/sh\nexec mpiexec -n 4 ./a\n", "python3 -m torch.distributed.run x.py",
		"torchrun --standalone x.py", "accelerate launch x.py", "(prterun -n 2 x)" };
	static const char *const others[] = { "", "python3 train.py", "srun ./a", "my-mpirun",
		"mpirun_log", "notorchrun x", "accelerate_it", "x.prun" };
	for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
		assert_true(alone_names_launcher(named[i]));
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
		assert_false(alone_names_launcher(others[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_script_of_a_larger_job),
		cmocka_unit_test(the_shell_of_salloc_on_a_node),
		cmocka_unit_test(what_is_meant_so),
		cmocka_unit_test(launchers_that_start_ranks_themselves),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
