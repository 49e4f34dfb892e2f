/* SPDX-License-Identifier: Apache-2.0 */
/* The preflight: tasks of a node, each a process as under Slurm, meet in shared memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/auto.h"
#include "common/clock.h"
#include "plugin/preflight.h"
#include "tests/unit/hang.h"

#define TASKS 3

/* What the tasks of one node are told; a NULL is not set. */
struct node {
	const char *node_rank, *gpus, *visible[TASKS], *job_nodes, *job_tasks;
	int absent; /* a task that never comes; -1: all come */
	enum preflight_mode mode;
	bool launches;
};

struct task {
	const struct node *node;
	int number;
	FILE *lines;
};

static const char *task_env(const char *name, void *arg)
{
	static char numbers[TASKS][4] = { "0", "1", "2" };
	const struct task *task = arg;
	const struct {
		const char *name, *value;
	} rows[] = {
		{ "SLURM_STEP_ID", "0" },
		{ "SLURM_PROCID", numbers[task->number] },
		{ "SLURM_STEP_NUM_TASKS", "3" },
		{ "SLURM_LOCALID", numbers[task->number] },
		{ "SLURM_NODEID", "0" },
		{ "SLURM_STEP_NUM_NODES", "1" },
		{ "SLURM_STEP_TASKS_PER_NODE", "3" },
		{ "SLURMD_NODENAME", "n1" },
		{ "RANK", "77" },
		{ "TORCHELASTIC_RUN_ID", "x" },
		{ "SLURM_GPUS_ON_NODE", task->node->gpus },
		{ "CUDA_VISIBLE_DEVICES", task->node->visible[task->number] },
		{ "SLURM_JOB_NUM_NODES", task->node->job_nodes },
		{ "MUSTER_JOB_TASKS", task->node->job_tasks },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (strcmp(rows[i].name, name) == 0)
			return rows[i].value;
	return NULL;
}

static void say(void *arg, const char *line)
{
	struct task *task = arg;
	fprintf(task->lines, "%s\n", line);
	fflush(task->lines);
}

static char said[4096];

/* Starts all tasks; returns how many are told to end. */
static int run(const struct node *node)
{
	struct preflight *shared = preflight_share(TASKS);
	AUTO_FCLOSE FILE *lines = tmpfile();
	pid_t pids[TASKS];
	int stopped = 0, status;
	assert_non_null(shared);
	for (int i = 0; i < TASKS; i++) {
		struct task task = { node, i, lines };
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(i != node->absent
				&& !preflight_task(shared, node->mode, node->launches, task_env, say, &task));
	}
	for (int i = 0; i < TASKS; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status));
		stopped += WEXITSTATUS(status);
	}
	rewind(lines);
	said[fread(said, 1, sizeof said - 1, lines)] = '\0';
	return stopped;
}

static int line_count(void)
{
	int count = 0;
	for (const char *c = said; *c; c++)
		count += *c == '\n';
	return count;
}

static void tasks_that_are_right_begin_in_silence(void **state)
{
	const struct node node = { .gpus = "3",
		.visible = { "0", "1", "2" },
		.job_nodes = "1",
		.job_tasks = "3",
		.absent = -1,
		.mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&node), 0);
	assert_string_equal(said, "");
	const struct node without = { .absent = -1, .mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&without), 0);
	assert_string_equal(said, "");
}

static void too_few_gpus_end_every_task_with_one_line(void **state)
{
	struct node node = { .gpus = "2",
		.visible = { "0,1", "0,1", "0,1" },
		.absent = -1,
		.mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&node), 3);
	assert_int_equal(line_count(), 1);
	assert_int_equal(strncmp(said,
						 "error: gpu-too-few: ranks 0-2 on n1: 3 tasks a node and 2 GPUs: ", 64),
		0);
	assert_non_null(strstr(said, "MUSTER_PREFLIGHT=warn"));
	node.mode = PREFLIGHT_MODE_WARN;
	assert_int_equal(run(&node), 0);
	assert_int_equal(line_count(), 1);
	assert_null(strstr(said, "MUSTER_PREFLIGHT"));
	node.mode = PREFLIGHT_MODE_OFF;
	assert_int_equal(run(&node), 0);
	assert_string_equal(said, "");
}

static void two_of_three_on_one_gpu_are_named(void **state)
{
	const struct node node = { .gpus = "3",
		.visible = { "0", "1", "0" },
		.absent = -1,
		.mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&node), 3);
	assert_int_equal(line_count(), 1);
	assert_int_equal(strncmp(said, "error: gpu-shared: ranks 0, 2 on n1: GPU 0 of the node", 53),
		0);
}

static void what_only_warns_stops_nothing(void **state)
{
	const struct node node = { .gpus = "3",
		.visible = { "0", "", "2" },
		.job_nodes = "1",
		.job_tasks = "12",
		.absent = -1,
		.mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&node), 0);
	assert_int_equal(line_count(), 2);
	assert_non_null(strstr(said, "error: gpu-none: rank 1 on n1: "));
	assert_non_null(strstr(said,
		"warning: step-tasks: the world size is 3, and the job was submitted for 12 tasks: "));
	assert_null(strstr(said, "MUSTER_PREFLIGHT"));
}

static void whoever_starts_ranks_itself_uses_all_gpus(void **state)
{
	struct node node = { .gpus = "4",
		.visible = { "0,1,2,3", "0,1,2,3", "0,1,2,3" },
		.absent = -1,
		.mode = PREFLIGHT_MODE_ON };
	assert_int_equal(run(&node), 0);
	assert_int_equal(strncmp(said,
						 "warning: gpu-idle: ranks 0-2 on n1: 3 tasks a node and 4 GPUs: ", 62),
		0);
	node.launches = true;
	assert_int_equal(run(&node), 0);
	assert_string_equal(said, "");
}

static void a_task_that_never_comes_holds_nobody_for_long(void **state)
{
	const struct node node = { .gpus = "2",
		.visible = { "0,1", "0,1", "0,1" },
		.absent = 1,
		.mode = PREFLIGHT_MODE_ON };
	double began = clock_now();
	assert_int_equal(run(&node), 0);
	assert_true(clock_now() - began < HANG_SECONDS);
	assert_string_equal(said, "");
}

static void memory_is_for_a_number_of_tasks_that_can_be(void **state)
{
	assert_null(preflight_share(0));
	assert_null(preflight_share(-1));
	assert_null(preflight_share(1 << 30));
	/* Another number of tasks than the step says: no check. */
	const struct node node = { .gpus = "2", .absent = -1, .mode = PREFLIGHT_MODE_ON };
	struct task task = { &node, 2, stderr };
	assert_true(preflight_task(preflight_share(2), PREFLIGHT_MODE_ON, false, task_env, say, &task));
	assert_true(preflight_task(NULL, PREFLIGHT_MODE_ON, false, task_env, say, &task));
}

static void modes_have_words(void **state)
{
	assert_int_equal(preflight_mode_of("on"), PREFLIGHT_MODE_ON);
	assert_int_equal(preflight_mode_of("warn"), PREFLIGHT_MODE_WARN);
	assert_int_equal(preflight_mode_of("off"), PREFLIGHT_MODE_OFF);
	assert_int_equal(preflight_mode_of("of"), -1);
	assert_int_equal(preflight_mode_of(""), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tasks_that_are_right_begin_in_silence),
		cmocka_unit_test(too_few_gpus_end_every_task_with_one_line),
		cmocka_unit_test(two_of_three_on_one_gpu_are_named),
		cmocka_unit_test(what_only_warns_stops_nothing),
		cmocka_unit_test(whoever_starts_ranks_itself_uses_all_gpus),
		cmocka_unit_test(a_task_that_never_comes_holds_nobody_for_long),
		cmocka_unit_test(memory_is_for_a_number_of_tasks_that_can_be),
		cmocka_unit_test(modes_have_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
