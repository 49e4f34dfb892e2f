/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/checks/check_launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

char said[SAID_MAX][1200];
bool provoked[64];

struct world healthy(void)
{
	struct world world;
	site_init(&world.site);
	for (int i = 0; i < RANKS; i++) {
		struct facts *task = &world.tasks[i];
		*task = (struct facts) { .rank = i,
			.world_size = RANKS,
			.local_rank = i % 2,
			.local_world_size = 2,
			.node_rank = i / 2,
			.node_count = 4,
			.in_step = true,
			.can_meet = true,
			.job_nodes = 4,
			.job_tasks = RANKS,
			.gpus = 2,
			.gpus_asked = true,
			.devices_present = 3,
			.devices_open = 3,
			.cpus_per_task = 4,
			.cpus_on_node = 8,
			.cpus_online = 8,
			.locked_memory = INT64_MAX,
			.rdma = true,
			.port = 23456,
			.dir_free = 1 << 30,
			.met_before = 1000,
			.met_after = 1000.01 };
		snprintf(task->node, sizeof task->node, "n%d", i / 2 + 1);
		snprintf(task->visible, sizeof task->visible, "%d", i % 2);
		snprintf(task->driver, sizeof task->driver, "550.54.14");
		snprintf(task->cuda, sizeof task->cuda, "12.4");
		snprintf(task->nccl, sizeof task->nccl, "2.28.9");
		snprintf(task->muster, sizeof task->muster, "0.1.0");
		snprintf(task->master, sizeof task->master, "n1");
		task->cpus[0] = i % 2 ? 0xf0 : 0x0f;
	}
	world.site.config_known = world.site.job_known = world.site.batch = world.site.requeue =
		world.site.append = true;
	world.site.kill_wait = 60;
	world.site.cred_expire = 5;
	world.site.job_tasks = RANKS;
	world.site.grace = 120;
	world.site.drain = 300;
	snprintf(world.site.mpi, sizeof world.site.mpi, "none pmi2 pmix");
	snprintf(world.site.partition, sizeof world.site.partition, "spot");
	snprintf(world.site.preempt_mode, sizeof world.site.preempt_mode, "REQUEUE");
	snprintf(world.site.dir, sizeof world.site.dir, "/shared/run1");
	world.site.save_stall = 0.5;
	world.site.save_flush = 20;
	world.site.need_bytes = 1 << 20;
	return world;
}

int judge(const struct world *world, int count, bool preflight)
{
	const struct checkup checkup = { world->tasks, count, &world->site };
	struct findings findings = { 0 };
	check_run(&checkup, preflight, &findings);
	assert_false(findings.incomplete);
	assert_in_range(findings.count, 0, SAID_MAX);
	int lines = findings.count;
	for (int i = 0; i < lines; i++) {
		finding_line(&findings.list[i], &checkup, said[i], sizeof said[i]);
		provoked[findings.list[i].check - checks] = true;
		assert_null(strchr(said[i], '\n'));
		assert_null(strstr(said[i], "{}"));
	}
	findings_clear(&findings);
	return lines;
}

void says(const struct world *world, const char *begin, const char *part)
{
	int lines = judge(world, RANKS, false);
	if (lines != 1 || strncmp(said[0], begin, strlen(begin)) != 0 || !strstr(said[0], part))
		for (int i = 0; i < lines; i++)
			print_message("said: %s\n", said[i]);
	assert_int_equal(lines, 1);
	assert_int_equal(strncmp(said[0], begin, strlen(begin)), 0);
	assert_non_null(strstr(said[0], part));
}
