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
	if (!value) {
		task->names[i][0] = '\0';
		return 0;
	}
	snprintf(task->names[i], sizeof task->names[i], "%s", name);
	snprintf(task->values[i], sizeof task->values[i], "%s", value);
	task->count += i == task->count;
	return 0;
}

/* Rank 5 of 8 over 4 nodes, as Slurm describes it; what outer launchers left behind is wrong on
 * purpose. */
static struct task *slurm_task(void)
{
	static const char *const vars[][2] = {
		{ "SLURM_JOB_ID", "77" },
		{ "SLURM_STEP_ID", "1" },
		{ "SLURM_PROCID", "5" },
		{ "SLURM_STEP_NUM_TASKS", "8" },
		{ "SLURM_LOCALID", "1" },
		{ "SLURM_NODEID", "2" },
		{ "SLURM_STEP_NUM_NODES", "4" },
		{ "SLURM_STEP_TASKS_PER_NODE", "2(x4)" },
		{ "SLURM_STEP_NODELIST", "gpu[07-09,12]" },
		{ "SLURM_NTASKS", "64" },
		{ "RANK", "99" },
		{ "WORLD_SIZE", "3" },
		{ "LOCAL_RANK", "9" },
		{ "NODE_RANK", "9" },
		{ "MUSTER_ATTEMPT", "7" },
	};
	struct task *task = calloc(1, sizeof *task);
	for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
		put(vars[i][0], vars[i][1], task);
	return task;
}

static void make(struct task *task, int attempt)
{
	struct err err = { 0 };
	struct rank_env_place place = { attempt, "10.1.0.7", NULL };
	if (rank_env_make(&place, get, put, task, &err) < 0)
		fail_msg("%s", err.text);
}

static void ranks_overwrite_what_was_there(void **state)
{
	struct task *task = slurm_task();
	make(task, 2);
	static const char *const want[][2] = {
		{ "RANK", "5" },
		{ "WORLD_SIZE", "8" },
		{ "LOCAL_RANK", "1" },
		{ "LOCAL_WORLD_SIZE", "2" },
		{ "NODE_RANK", "2" },
		{ "GROUP_RANK", "2" },
		{ "GROUP_WORLD_SIZE", "4" },
		{ "ROLE_RANK", "5" },
		{ "ROLE_WORLD_SIZE", "8" },
		{ "ROLE_NAME", "default" },
		{ "MASTER_ADDR", "10.1.0.7" },
		{ "SLURM_NTASKS_PER_NODE", "2" },
		{ "MUSTER", "1" },
		{ "MUSTER_ATTEMPT", "2" },
		{ "MUSTER_LOCAL_RANK", "1" },
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
		assert_string_equal(get(want[i][0], task), want[i][1]);
	assert_null(get("OMP_NUM_THREADS", task));
	assert_null(get("JAX_LOCAL_DEVICE_IDS", task));
	assert_string_equal(get("JAX_COORDINATOR_ADDRESS", task) + strlen("10.1.0.7:"),
		get("JAX_COORDINATOR_PORT", task));
	assert_string_not_equal(get("JAX_COORDINATOR_PORT", task), get("MASTER_PORT", task));
	for (int i = 0; i < task->count; i++)
		assert_true(strncmp(task->names[i], "TORCHELASTIC", 12) != 0);
	free(task);
}

static void one_visible_device_is_device_0(void **state)
{
	static const struct {
		const char *devices, *local_rank;
	} cases[] = {
		{ "0,1", "1" },
		{ "1", "0" },
		{ "GPU-3f2a-11", "0" },
		{ "NoDevFiles", "1" },
		{ "-1", "1" },
		{ "", "1" },
		{ "GPU-3f2a-11,GPU-3f2a-12", "1" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct task *task = slurm_task();
		put("CUDA_VISIBLE_DEVICES", cases[i].devices, task);
		make(task, 0);
		assert_string_equal(get("LOCAL_RANK", task), cases[i].local_rank);
		assert_string_equal(get("MUSTER_LOCAL_RANK", task), "1");
		const char *jax = get("JAX_LOCAL_DEVICE_IDS", task);
		assert_true(cases[i].local_rank[0] == '0' ? jax && strcmp(jax, "0") == 0 : !jax);
		free(task);
	}
}

static void the_users_own_values_win(void **state)
{
	static const char *const own[][2] = {
		{ "MASTER_ADDR", "here" },
		{ "MASTER_PORT", "1234" },
		{ "OMP_NUM_THREADS", "3" },
		{ "JAX_COORDINATOR_ADDRESS", "a:1" },
		{ "JAX_COORDINATOR_PORT", "1" },
		{ "JAX_LOCAL_DEVICE_IDS", "0,1" },
		{ "SLURM_NTASKS_PER_NODE", "4" },
	};
	/* Each alone: the others then are ours. */
	for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
		struct task *task = slurm_task();
		put("SLURM_CPUS_PER_TASK", "12", task);
		put("CUDA_VISIBLE_DEVICES", "1", task);
		put(own[i][0], own[i][1], task);
		make(task, 0);
		for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) {
			assert_non_null(get(own[k][0], task));
			assert_true((strcmp(get(own[k][0], task), own[k][1]) == 0) == (i == k));
			assert_true((strstr(get("MUSTER_DEFAULTS", task), own[k][0]) == NULL) == (i == k));
		}
		free(task);
	}
}

/* JAX's service is on rank 0's host too, so what the user says of that counts for both. */
static void jax_meets_where_the_user_says(void **state)
{
	struct task *task = slurm_task();
	put("MASTER_ADDR", "fd00::7", task);
	put("JAX_COORDINATOR_PORT", "99", task);
	make(task, 0);
	assert_string_equal(get("JAX_COORDINATOR_ADDRESS", task), "[fd00::7]:99");
	free(task);
}

static void an_outer_steps_values_do_not(void **state)
{
	static const char *const inner[][2] = {
		{ "SLURM_STEP_ID", "2" },
		{ "SLURM_STEP_NODELIST", "gpu[09,12]" },
		{ "SLURM_STEP_TASKS_PER_NODE", "6,2" },
		{ "SLURM_STEP_NUM_NODES", "2" },
		{ "SLURM_NODEID", "0" },
		{ "SLURM_CPUS_PER_TASK", "1" },
		{ "CUDA_VISIBLE_DEVICES", "0,1" },
		{ "MASTER_PORT", "7" },
	};
	struct task *task = slurm_task();
	put("SLURM_CPUS_PER_TASK", "12", task);
	put("CUDA_VISIBLE_DEVICES", "1", task);
	make(task, 0);
	assert_string_equal(get("JAX_LOCAL_DEVICE_IDS", task), "0");
	char *old_port = strdup(get("JAX_COORDINATOR_PORT", task));
	for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++)
		put(inner[i][0], inner[i][1], task);
	make(task, 0);
	assert_string_equal(get("OMP_NUM_THREADS", task), "1");
	assert_string_equal(get("MASTER_PORT", task), "7"); /* this one the user has set in between */
	assert_string_not_equal(get("JAX_COORDINATOR_PORT", task), old_port);
	assert_null(get("JAX_LOCAL_DEVICE_IDS", task));
	assert_null(get("SLURM_NTASKS_PER_NODE", task));
	free(old_port);
	free(task);
}

static void an_unknown_rank_0_is_an_error_unless_the_user_knows(void **state)
{
	struct task *task = slurm_task();
	struct rank_env_place place = { 0, NULL, "no idea" };
	struct err err = { 0 };
	assert_int_equal(rank_env_make(&place, get, put, task, &err), -1);
	assert_string_equal(err.text, "no idea");
	put("MASTER_ADDR", "here", task);
	assert_int_equal(rank_env_make(&place, get, put, task, &err), 0);
	assert_int_equal(strncmp(get("JAX_COORDINATOR_ADDRESS", task), "here:", 5), 0);
	free(task);
}

static void too_long_a_host_is_an_error(void **state)
{
	struct task *task = slurm_task();
	struct rank_env_place place = { 0, "n1", NULL };
	struct err err = { 0 };
	char host[300];
	memset(host, 'h', sizeof host - 1);
	host[sizeof host - 1] = '\0';
	put("MASTER_ADDR", host, task);
	assert_int_equal(rank_env_make(&place, get, put, task, &err), -1);
	assert_non_null(strstr(err.text, "MASTER_ADDR"));
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
	struct rank_env_place place = { 0, "n1", NULL };
	put("SLURM_JOB_ID", "5", &task);
	assert_int_equal(rank_env_make(&place, get, put, &task, &err), -1);
	assert_non_null(strstr(err.text, "SLURM_STEP_NUM_TASKS"));
}

static void ports_lie_outside_the_ephemeral_range_and_differ(void **state)
{
	int same = 0;
	for (uint32_t job = 0; job < 20000; job++) {
		int port = rank_env_port(job, 0, 0);
		assert_in_range(port, 1024, 32767);
		assert_in_range(rank_env_second_port(port), 1024, 32767);
		assert_int_not_equal(rank_env_second_port(port), port);
		assert_int_equal(rank_env_second_port(rank_env_second_port(port)), port);
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
		cmocka_unit_test(the_users_own_values_win),
		cmocka_unit_test(jax_meets_where_the_user_says),
		cmocka_unit_test(an_outer_steps_values_do_not),
		cmocka_unit_test(an_unknown_rank_0_is_an_error_unless_the_user_knows),
		cmocka_unit_test(too_long_a_host_is_an_error),
		cmocka_unit_test(stated_cpus_become_threads),
		cmocka_unit_test(outside_a_step_it_is_an_error),
		cmocka_unit_test(ports_lie_outside_the_ephemeral_range_and_differ),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
