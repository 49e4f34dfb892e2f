/* SPDX-License-Identifier: Apache-2.0 */
/* Facts: from a task's environment, what follows from them, and over the wire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks/facts.h"
#include "checks/facts_probe.h"
#include "doctor/facts_json.h"

/* Pairs of name and value, NULL at the end. */
static const char *table_env(const char *name, void *arg)
{
	for (const char *const *row = arg; row[0]; row += 2)
		if (strcmp(row[0], name) == 0)
			return row[1];
	return NULL;
}

static const struct ident ident = { .rank = 3,
	.world_size = 8,
	.local_rank = 1,
	.local_world_size = 2,
	.node_rank = 1,
	.node_count = 4,
	.node = "n2",
	.source = "slurm" };

static struct facts from(const char *const *table)
{
	struct facts facts;
	facts_from_env(&facts, &ident, table_env, (void *)table);
	return facts;
}

static void a_task_of_a_step(void **state)
{
	const char *const table[] = { "SLURM_STEP_ID", "0", "SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS",
		"8", "PMIX_NAMESPACE", "slurm.pmix.1.0", "SLURM_JOB_NUM_NODES", "4", "SLURM_GPUS_PER_TASK",
		"1", "SLURM_STEP_GPUS", "1", "SLURM_GPUS_ON_NODE", "2", "CUDA_VISIBLE_DEVICES", "1",
		"SLURM_CPUS_PER_TASK", "2", "SLURM_CPUS_ON_NODE", "4", "SLURM_STEP_NODELIST", "n[1-4]",
		"MASTER_PORT", "23456", "MUSTER_JOB_TASKS", "16", "MUSTER_CKPTD",
		"/run/muster/job-1/ckptd/socket", NULL };
	struct facts facts = from(table);
	assert_true(facts.in_step && facts.can_meet && facts.gpus_asked && facts.service);
	assert_false(facts.gpus_hidden || facts.gpus_may_share);
	assert_int_equal(facts.rank, 3);
	assert_string_equal(facts.node, "n2");
	assert_int_equal(facts.job_nodes, 4);
	assert_int_equal(facts.job_tasks, 16);
	assert_int_equal(facts.gpus, 2);
	assert_string_equal(facts.visible, "1");
	assert_int_equal(facts.cpus_per_task, 2);
	assert_int_equal(facts.cpus_on_node, 4);
	assert_string_equal(facts.master, "n1");
	assert_int_equal(facts.port, 23456);
}

static void a_batch_script_is_no_task(void **state)
{
	const char *const table[] = { "SLURM_STEP_ID", "-5", "SLURM_PROCID", "0", "SLURM_JOB_ID", "7",
		NULL };
	assert_false(from(table).in_step);
}

static void nothing_said_is_nothing_known(void **state)
{
	const char *const table[] = { NULL };
	struct facts facts = from(table);
	assert_false(
		facts.in_step || facts.can_meet || facts.gpus_asked || facts.gpus_hidden || facts.service);
	assert_int_equal(facts.gpus, -1);
	assert_int_equal(facts.job_nodes, -1);
	assert_int_equal(facts.port, -1);
	assert_string_equal(facts.visible, "");
	assert_string_equal(facts.master, "");
}

static void hostile_values_are_nothing_known(void **state)
{
	char list[5000];
	memset(list, '7', sizeof list - 1);
	list[sizeof list - 1] = '\0';
	const char *const table[] = { "SLURM_JOB_NUM_NODES", "-4", "SLURM_GPUS_ON_NODE",
		"99999999999999999999", "MASTER_PORT", "x", "SLURM_STEP_NODELIST", "n[",
		"CUDA_VISIBLE_DEVICES", list, "SLURM_CPUS_PER_TASK", "", NULL };
	struct facts facts = from(table);
	assert_int_equal(facts.job_nodes, -1);
	assert_int_equal(facts.gpus, -1);
	assert_int_equal(facts.port, -1);
	assert_int_equal(facts.cpus_per_task, -1);
	assert_string_equal(facts.master, "");
	assert_int_equal(strlen(facts.visible), sizeof facts.visible - 1);
}

/* Whole nodes come with their GPUs, whatever the job asks for. */
static void gpus_that_nobody_asked_for(void **state)
{
	const char *const given[] = { "SLURM_JOB_GPUS", "0,1", NULL },
					  *const asked[] = { "SLURM_GPUS_PER_NODE", "2", NULL };
	assert_false(from(given).gpus_asked);
	assert_int_equal(from(given).gpus, -1);
	assert_true(from(asked).gpus_asked);
}

static void words_for_no_device(void **state)
{
	static const char *const words[] = { "", "-1", "NoDevFiles" };
	for (int i = 0; i < 3; i++) {
		const char *const table[] = { "CUDA_VISIBLE_DEVICES", words[i], NULL };
		struct facts facts = from(table);
		assert_true(facts.gpus_hidden);
		assert_string_equal(facts.visible, "");
	}
	const char *const amd[] = { "ROCR_VISIBLE_DEVICES", "0,3", "SLURM_SHARDS_ON_NODE", "2", NULL };
	struct facts facts = from(amd);
	assert_string_equal(facts.visible, "0,3");
	assert_true(facts.gpus_may_share);
}

static void the_gpu_that_a_rank_is_to_use(void **state)
{
	static const struct {
		const char *visible;
		int64_t present, open;
		const char *gpu;
	} rows[] = {
		{ "", 0, 0, "" },
		{ "3", 0, 0, "3" },
		{ "2,5", 0, 0, "5" },
		{ "GPU-1a,GPU-2b", 3, 3, "GPU-2b" },
		{ "0", 0xf, 0x4, "2" }, /* the cgroup left only number 2 */
		{ "0,1", 0xf, 0xa, "3" },
		{ "1", 0xf, 0x4, "" }, /* there is no such one */
		{ "GPU-1a", 0xf, 0x4, "GPU-1a" },
	};
	char out[80];
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct facts facts = { .local_rank = 1,
			.devices_present = rows[i].present,
			.devices_open = rows[i].open };
		strcpy(facts.visible, rows[i].visible);
		assert_string_equal(facts_gpu(&facts, out, sizeof out), rows[i].gpu);
	}
	struct facts beyond = { .local_rank = 2, .visible = "0,1" };
	assert_string_equal(facts_gpu(&beyond, out, sizeof out), "");
}

static void interfaces_as_nccl_takes_them(void **state)
{
	static const struct {
		const char *words, *name;
		bool takes;
	} rows[] = {
		{ "eth", "eth0", true },
		{ "eth", "ethernet", true },
		{ "eth", "lo", false },
		{ "=eth", "eth0", false },
		{ "=eth0", "eth0", true },
		{ "=eth0", "eth01", false },
		{ "ib,eth1", "eth1", true },
		{ "ib,eth1", "eth0", false },
		{ "^docker,lo", "eth0", true },
		{ "^docker,lo", "lo", false },
		{ "^=docker", "docker0", true },
		{ "eth0:4000,ib0", "ib0", true },
		{ "eth0:4000", "eth0", true },
		{ ",", "eth0", false },
		{ "", "eth0", false },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		assert_int_equal(facts_takes_interface(rows[i].words, rows[i].name), rows[i].takes);
}

/* This machine has a loopback, if nothing else. */
static void the_interfaces_of_this_machine(void **state)
{
	const char *const table[] = { "NCCL_SOCKET_IFNAME", "=lo", "GLOO_SOCKET_IFNAME", "lo", NULL };
	struct facts facts = from(table);
	facts_probe_interfaces(&facts);
	facts_probe_network(&facts);
	assert_non_null(strstr(facts.interfaces, "lo"));
	assert_string_equal(facts.nccl_ways, "lo=127.0.0.1");
	assert_string_equal(facts.gloo_ways, "lo=127.0.0.1");
	const char *const none[] = { "NCCL_SOCKET_IFNAME", "=none", "GLOO_SOCKET_IFNAME", "none",
		NULL };
	facts = from(none);
	facts_probe_network(&facts);
	assert_string_equal(facts.nccl_ways, "");
	assert_string_equal(facts.gloo_ways, "");
	const char *const unset[] = { NULL };
	facts = from(unset);
	facts_probe_network(&facts);
	assert_true(facts.nccl_ways[0] && facts.gloo_ways[0]);
}

static void cpus_as_a_list(void **state)
{
	char out[30];
	struct facts facts = { .cpus = { 0x0f, 0x01 } };
	facts.cpus[FACTS_CPU_BYTES - 1] = 0x80;
	assert_string_equal(facts_cpu_list(facts.cpus, out, sizeof out), "0-3,8,1023");
	assert_int_equal(facts_cpu_count(&facts), 6);
	memset(facts.cpus, 0x55, sizeof facts.cpus);
	assert_true(strlen(facts_cpu_list(facts.cpus, out, sizeof out)) < sizeof out);
}

static void the_wire_keeps_every_field(void **state)
{
	struct facts facts, back;
	struct err err;
	const char *const table[] = { "CUDA_VISIBLE_DEVICES", "0,1", "SLURM_STEP_ID", "1",
		"SLURM_PROCID", "3", NULL };
	facts = from(table);
	facts_probe_limits(&facts);
	memset(facts.dir_error, 'x', sizeof facts.dir_error - 1);
	facts.devices_present = INT64_MAX;
	facts.met_before = 1732205000.123456789;
	facts.met_after = facts.met_before + 1e-6;
	facts.dir_full = facts.dir_differs = facts.rdma = true;
	char *text = facts_encode(&facts, &err);
	assert_non_null(text);
	memset(&back, 0, sizeof back);
	assert_int_equal(facts_decode(text, strlen(text), &back, &err), 0);
	char *again = facts_encode(&back, &err);
	assert_string_equal(text, again);
	assert_true(strlen(text) < 8192);
	assert_memory_equal(facts.cpus, back.cpus, sizeof facts.cpus);
	assert_true(back.met_before == facts.met_before);
	free(text);
	free(again);
}

static void what_is_not_understood_is_refused(void **state)
{
	static const char *const bad[] = { "", "[]", "{\"rank\":\"x\"}", "{\"rank\":99999999999}",
		"{\"cpus\":\"zz\"}", "{\"can_meet\":1}" };
	struct facts facts = { 0 };
	struct err err;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(facts_decode(bad[i], strlen(bad[i]), &facts, &err), -1);
	assert_int_equal(facts_decode("{\"of a later build\":1}", 22, &facts, &err), 0);
	/* A name that is not UTF-8 must not keep a rank from telling the rest. */
	strcpy(facts.node,
		"n\xff"
		"1");
	char *text = facts_encode(&facts, &err);
	assert_non_null(strstr(text, "\"node\":\"n?1\""));
	free(text);
}

static void this_machine_can_be_probed(void **state)
{
	struct facts facts = { .rank = 0, .port = 70000 };
	facts_probe_devices(&facts);
	facts_probe_limits(&facts);
	facts_probe_versions(&facts);
	facts_probe_port(&facts);
	assert_int_equal(facts.devices_open & ~facts.devices_present, 0);
	assert_in_range(facts_cpu_count(&facts), 1, FACTS_CPU_BYTES * 8);
	assert_true(facts.locked_memory >= 0);
	assert_true(strstr(facts.muster, "(build ") != NULL);
	assert_string_equal(facts.port_error, "it is not a port");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_task_of_a_step),
		cmocka_unit_test(a_batch_script_is_no_task),
		cmocka_unit_test(nothing_said_is_nothing_known),
		cmocka_unit_test(hostile_values_are_nothing_known),
		cmocka_unit_test(gpus_that_nobody_asked_for),
		cmocka_unit_test(words_for_no_device),
		cmocka_unit_test(the_gpu_that_a_rank_is_to_use),
		cmocka_unit_test(interfaces_as_nccl_takes_them),
		cmocka_unit_test(the_interfaces_of_this_machine),
		cmocka_unit_test(cpus_as_a_list),
		cmocka_unit_test(the_wire_keeps_every_field),
		cmocka_unit_test(what_is_not_understood_is_refused),
		cmocka_unit_test(this_machine_can_be_probed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
