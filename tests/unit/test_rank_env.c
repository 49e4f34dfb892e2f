/* SPDX-License-Identifier: Apache-2.0 */
/* Rank variables: what Slurm gives a task, what a PyTorch script needs, and whose word wins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/rank_env.h"

struct task {
	char names[64][64], values[64][300];
	int count;
};

static const char *get(const char *name, void *arg)
{
	struct task *task = arg;
	for (int i = 0; i < task->count; i++)
		if (strcmp(task->names[i], name) == 0)
			return task->values[i];
	return NULL;
}

static int put(const char *name, const char *value, void *arg)
{
	struct task *task = arg;
	int i = 0;
	while (i < task->count && strcmp(task->names[i], name) != 0)
		i++;
	assert_true(i < 64);
	snprintf(task->names[i], sizeof task->names[i], "%s", name);
	snprintf(task->values[i], sizeof task->values[i], "%s", value);
	task->count += i == task->count;
	return 0;
}

/* Rank 5 of 8 over 4 nodes, as Slurm describes it; what outer launchers left behind is wrong on purpose. */
static struct task *slurm_task(void)
{
	static const char *const vars[][2] = {
		{ "SLURM_JOB_ID", "77" }, { "SLURM_STEP_ID", "1" }, { "SLURM_PROCID", "5" }, { "SLURM_STEP_NUM_TASKS", "8" },
		{ "SLURM_LOCALID", "1" }, { "SLURM_NODEID", "2" }, { "SLURM_STEP_NUM_NODES", "4" },
		{ "SLURM_STEP_TASKS_PER_NODE", "2(x4)" }, { "SLURM_STEP_NODELIST", "gpu[07-09,12]" }, { "SLURM_NTASKS", "64" },
		{ "RANK", "99" }, { "WORLD_SIZE", "3" }, { "LOCAL_RANK", "9" }, { "NODE_RANK", "9" }, { "MUSTER_ATTEMPT", "7" },
	};
	struct task *task = calloc(1, sizeof *task);
	for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
		put(vars[i][0], vars[i][1], task);
	return task;
}

static void make(struct task *task, int attempt)
{
	struct err err = { 0 };
	if (rank_env_make(attempt, get, put, task, &err) < 0)
		fail_msg("%s", err.text);
}

static void ranks_overwrite_what_was_there(void **state)
{
	struct task *task = slurm_task();
	make(task, 2);
	static const char *const want[][2] = {
		{ "RANK", "5" }, { "WORLD_SIZE", "8" }, { "LOCAL_RANK", "1" }, { "LOCAL_WORLD_SIZE", "2" }, { "NODE_RANK", "2" },
		{ "GROUP_RANK", "2" }, { "GROUP_WORLD_SIZE", "4" }, { "MASTER_ADDR", "gpu07" }, { "MUSTER", "1" },
		{ "MUSTER_ATTEMPT", "2" }, { "MUSTER_LOCAL_RANK", "1" },
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
		assert_string_equal(get(want[i][0], task), want[i][1]);
	assert_null(get("OMP_NUM_THREADS", task));
	for (int i = 0; i < task->count; i++)
		assert_true(strncmp(task->names[i], "TORCHELASTIC", 12) != 0);
	free(task);
}

static void one_visible_device_is_device_0(void **state)
{
	static const struct { const char *devices, *local_rank; } cases[] = {
		{ "0,1", "1" }, { "1", "0" }, { "GPU-3f2a-11", "0" }, { "NoDevFiles", "1" }, { "-1", "1" }, { "", "1" },
		{ "GPU-3f2a-11,GPU-3f2a-12", "1" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct task *task = slurm_task();
		put("CUDA_VISIBLE_DEVICES", cases[i].devices, task);
		make(task, 0);
		assert_string_equal(get("LOCAL_RANK", task), cases[i].local_rank);
		assert_string_equal(get("MUSTER_LOCAL_RANK", task), "1");
		free(task);
	}
}

static void the_users_meeting_place_wins(void **state)
{
	struct task *task = slurm_task();
	put("MASTER_ADDR", "here", task);
	put("MASTER_PORT", "1234", task);
	put("OMP_NUM_THREADS", "3", task);
	put("SLURM_CPUS_PER_TASK", "12", task);
	make(task, 0);
	assert_string_equal(get("MASTER_ADDR", task), "here");
	assert_string_equal(get("MASTER_PORT", task), "1234");
	assert_string_equal(get("OMP_NUM_THREADS", task), "3");
	free(task);
}

static void an_outer_steps_meeting_place_does_not(void **state)
{
	struct task *task = slurm_task();
	make(task, 0);
	put("SLURM_STEP_ID", "2", task);
	put("SLURM_STEP_NODELIST", "gpu09", task);
	put("SLURM_STEP_TASKS_PER_NODE", "8", task);
	put("SLURM_STEP_NUM_NODES", "1", task);
	put("SLURM_NODEID", "0", task);
	put("SLURM_LOCALID", "5", task);
	char *old_port = strdup(get("MASTER_PORT", task));
	make(task, 0);
	assert_string_equal(get("MASTER_ADDR", task), "gpu09");
	assert_string_not_equal(get("MASTER_PORT", task), old_port);
	free(old_port);
	free(task);
}

static void stated_cpus_become_threads(void **state)
{
	struct task *task = slurm_task();
	put("SLURM_CPUS_PER_TASK", "12", task);
	make(task, 0);
	assert_string_equal(get("OMP_NUM_THREADS", task), "12");
	free(task);
}

static void outside_a_step_it_is_an_error(void **state)
{
	struct task task = { 0 };
	struct err err = { 0 };
	put("SLURM_JOB_ID", "5", &task);
	assert_int_equal(rank_env_make(0, get, put, &task, &err), -1);
	assert_non_null(strstr(err.text, "SLURM_STEP_NUM_TASKS"));
}

static void first_hosts(void **state)
{
	static const struct { const char *list, *host; } cases[] = {
		{ "n1", "n1" }, { "n1,m2", "n1" }, { "n[1-4,7],m2", "n1" }, { "n[07-09]", "n07" }, { "rack[3]node[12-14]-x", "rack3node12-x" },
		{ "a.b.c,d", "a.b.c" }, { "n[5,1]", "n5" }, { "", NULL }, { ",a", NULL }, { "n[", NULL }, { "n[]", NULL }, { "n[a]", NULL },
		{ "n[1-4", NULL }, { "a-much-too-long-name", NULL },
	};
	char host[16];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int rc = rank_env_first_host(cases[i].list, host, sizeof host);
		assert_int_equal(rc, cases[i].host ? 0 : -1);
		if (cases[i].host)
			assert_string_equal(host, cases[i].host);
	}
}

static void ports_lie_outside_the_ephemeral_range_and_differ(void **state)
{
	int same = 0;
	for (uint32_t job = 0; job < 20000; job++) {
		int port = rank_env_port(job, 0, 0);
		assert_in_range(port, 1024, 32767);
		same += port == rank_env_port(job, 1, 0);
		same += port == rank_env_port(job, 0, 1);
		same += port == rank_env_port(job + 1, 0, 0);
	}
	/* 60000 pairs over 12000 ports: chance gives 5. */
	assert_in_range(same, 0, 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_overwrite_what_was_there),
		cmocka_unit_test(one_visible_device_is_device_0),
		cmocka_unit_test(the_users_meeting_place_wins),
		cmocka_unit_test(an_outer_steps_meeting_place_does_not),
		cmocka_unit_test(stated_cpus_become_threads),
		cmocka_unit_test(outside_a_step_it_is_an_error),
		cmocka_unit_test(first_hosts),
		cmocka_unit_test(ports_lie_outside_the_ephemeral_range_and_differ),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
