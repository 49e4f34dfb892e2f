/* SPDX-License-Identifier: Apache-2.0 */
/* restart: what scontrol says, and nodes that answer or not. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/listen.h"
#include "restart/reach.h"
#include "tests/unit/files.h"

static void a_node_is_read(void **state)
{
	static const struct {
		const char *line, *address;
		int port;
		bool down;
	} cases[] = {
		{ "NodeName=n2 Arch=x86_64 NodeAddr=10.77.0.12 NodeHostName=n2 Port=7000 State=MIXED X=1",
			"10.77.0.12", 7000, false },
		{ "NodeName=n2 State=IDLE+DRAIN Reason=a State=DOWN", "n2", 0, false },
		{ "NodeName=n2 NodeAddr=a State=DOWN", "a", 0, true },
		{ "NodeName=n2 NodeAddr=a State=ALLOCATED*", "a", 0, true },
		{ "NodeName=n2 NodeAddr=a State=ALLOCATED+NOT_RESPONDING", "a", 0, true },
		{ "NodeName=n2 NodeAddr=a State=IDLE+POWERED_DOWN", "a", 0, true },
	};
	struct reach_node node;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_true(reach_parse_node(cases[i].line, &node));
		assert_string_equal(node.name, "n2");
		assert_string_equal(node.address, cases[i].address);
		assert_int_equal(node.port, cases[i].port);
		assert_int_equal(node.down, cases[i].down);
	}
	assert_false(reach_parse_node("", &node));
	assert_false(reach_parse_node("NodeName=n2", &node));
	assert_false(reach_parse_node("XNodeName=n2 State=IDLE", &node));
}

static void a_job_goes_on_in_its_attempt_only(void **state)
{
	bool goes_on;
	assert_true(reach_parse_job("JobId=3 JobState=RUNNING Reason=None Requeue=1 Restarts=2 "
								"PreemptTime=None",
		2, &goes_on));
	assert_true(goes_on);
	assert_true(reach_parse_job("JobState=RUNNING Restarts=3 PreemptTime=None", 2, &goes_on));
	assert_false(goes_on);
	assert_true(reach_parse_job("JobState=COMPLETING Restarts=2", 2, &goes_on));
	assert_false(goes_on);
	assert_true(reach_parse_job("JobState=RUNNING Restarts=2 PreemptTime=2026-11-28T08:00:00", 2,
		&goes_on));
	assert_false(goes_on);
	assert_false(reach_parse_job("slurm_load_jobs error", 2, &goes_on));
}

static void a_site_is_read(void **state)
{
	struct reach_site site;
	reach_parse_site("Configuration data\nSlurmdPort              = 7001\n"
					 "SrunPortRange           = 60001-63000\n",
		&site);
	assert_int_equal(site.slurmd_port, 7001);
	assert_int_equal(site.srun_ports[0], 60001);
	assert_int_equal(site.srun_ports[1], 63000);
	reach_parse_site("SrunPortRange           = 0-0\n", &site);
	assert_int_equal(site.slurmd_port, 6818);
	assert_int_equal(site.srun_ports[0], 0);
}

/* A scontrol of the test's: n1 and n3 have a slurmd, n2 has none, and n3 is down; it fails once. */
static void who_does_not_answer_is_found(void **state)
{
	struct nodes nodes;
	struct reach_site site = { .slurmd_port = 1 };
	struct err err;
	int port, fd = listen_any(0, &port);
	char path[5000];
	assert_true(fd >= 0);
	FILE *script = fopen(files_path("scontrol"), "w");
	fprintf(script,
		"#!/bin/sh\n"
		"[ \"$*\" = '--oneliner show node n1,n2,n3' ] || exit 1\n"
		"[ -e \"$0.asked\" ] || { : >\"$0.asked\"; exit 1; }\n"
		"echo NodeName=n1 NodeAddr=127.0.0.1 Port=%d State=IDLE\n"
		"echo NodeName=n2 NodeAddr=127.0.0.1 State=IDLE\n"
		"echo NodeName=n3 NodeAddr=127.0.0.1 Port=%d State=DOWN\n",
		port, port);
	fclose(script);
	assert_int_equal(chmod(files_path("scontrol"), 0755), 0);
	snprintf(path, sizeof path, "%s:%s", files_path("."), getenv("PATH"));
	setenv("PATH", path, 1);
	assert_int_equal(nodes_read(&nodes, "n[1-4]", &err), 0);
	assert_int_equal(reach_nodes(&nodes, "n1,n2,n3", &site, deadline_in(300), &err), 0);
	assert_false(nodes_find(&nodes, "n1")->unreachable);
	assert_true(nodes_find(&nodes, "n2")->unreachable);
	assert_true(nodes_find(&nodes, "n3")->unreachable);
	assert_false(nodes_find(&nodes, "n4")->unreachable);
	/* to anything else that scontrol is asked it has no answer */
	assert_int_equal(reach_nodes(&nodes, "n4", &site, deadline_in(0), &err), -1);
	assert_int_equal(err.status, EXIT_LOST);
	assert_string_equal(err.text,
		"couldn't ask Slurm about n4: see whether slurmctld runs (scontrol ping)");
	nodes_free(&nodes);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_is_read),
		cmocka_unit_test(a_job_goes_on_in_its_attempt_only),
		cmocka_unit_test(a_site_is_read),
		cmocka_unit_test(who_does_not_answer_is_found),
	};
	return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
