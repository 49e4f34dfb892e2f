/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of Slurm's settings and the job's: does the job come back, and is there time to save
 * before it goes? */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checks/check.h"

#define CRED_EXPIRE_DEFAULT 120
#define CRED_EXPIRE_MOST 30

void check_slurm_silent(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (checkup->site && checkup->site->silent[0])
		findings_add(findings, check, -1, NULL, "%s", checkup->site->silent);
}

/* Slurm compares major and minor version. */
void check_plugin(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct site *site = checkup->site;
	if (!site || !site->plugin[0])
		return;
	uint32_t built = site->plugin_release, slurm = site->release;
	if (site->plugin_missing)
		findings_add(findings, check, -1, NULL, "%.300s can't be read", site->plugin);
	else if (built && slurm && built >> 8 != slurm >> 8)
		findings_add(findings, check, -1, NULL,
			"%.300s was built for Slurm %u.%02u, and this is %u.%02u", site->plugin, built >> 16,
			built >> 8 & 0xff, slurm >> 16, slurm >> 8 & 0xff);
}

/* Whether the job can come back at all; outside a job: whether one yet to be submitted could. */
static bool comes_back(const struct checkup *checkup)
{
	return checkup->site
		&& (!checkup->site->job_known || (checkup->site->batch && checkup->site->requeue));
}

void check_requeue(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (checkup->site && checkup->site->job_known && checkup->site->batch
		&& !checkup->site->requeue)
		findings_add(findings, check, -1, NULL,
			"the job was submitted with --no-requeue, or this Slurm has JobRequeue=0");
}

void check_batch(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (checkup->site && checkup->site->job_known && !checkup->site->batch)
		findings_add(findings, check, -1, NULL,
			"this job was started by srun or salloc and can't be put back in the queue");
}

void check_open_mode(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct site *site = checkup->site;
	if (comes_back(checkup) && site->job_known && site->config_known && !site->append
		&& !site->file_append)
		findings_add(findings, check, -1, NULL, "the next attempt empties the output of this one");
}

/* For how many seconds a save occupies the trainer; -1: none is recorded. With a checkpoint service
 * outside the step, a snapshot that was handed over is written even if the step is killed. */
static double save_seconds(const struct checkup *checkup)
{
	const struct site *site = checkup->site;
	bool service = checkup->count > 0;
	for (int i = 0; i < checkup->count; i++)
		service &= checkup->tasks[i].service;
	if (!site || site->save_stall < 0)
		return -1;
	return service ? site->save_stall : site->save_stall + site->save_flush;
}

/* Adds a finding if `given` seconds, named by `noun`, are too few. */
static void compare_time(const struct check *check, const struct checkup *checkup,
	struct findings *findings, int given, const char *noun)
{
	double need = save_seconds(checkup);
	char value[24];
	if (given < 0 || need < 0 || need <= given)
		return;
	snprintf(value, sizeof value, "%.0f", ceil(2 * need));
	findings_add(findings, check, -1, value, "%s is %d s, and a save took %.1f s", noun, given,
		need);
}

void check_grace(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	char noun[200];
	if (!checkup->site || strcmp(checkup->site->preempt_mode, "OFF") == 0)
		return;
	snprintf(noun, sizeof noun, "GraceTime of partition %s", checkup->site->partition);
	compare_time(check, checkup, findings, checkup->site->grace, noun);
}

void check_kill_wait(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (checkup->site)
		compare_time(check, checkup, findings, checkup->site->kill_wait, "KillWait");
}

void check_credentials(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (!comes_back(checkup) || !checkup->site->config_known)
		return;
	int seconds = checkup->site->cred_expire < 0 ? CRED_EXPIRE_DEFAULT : checkup->site->cred_expire;
	if (seconds > CRED_EXPIRE_MOST)
		findings_add(findings, check, -1, NULL,
			"a requeued job waits %d s before it may start again (AuthInfo %s cred_expire)",
			seconds, checkup->site->cred_expire < 0 ? "has no" : "has this");
}

void check_preempt_mode(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	if (comes_back(checkup) && strncmp(checkup->site->preempt_mode, "CANCEL", 6) == 0)
		findings_add(findings, check, -1, NULL, "partition %s has PreemptMode=%s",
			checkup->site->partition, checkup->site->preempt_mode);
}

/* slurm.conf(5): one port for the controller's answer, one to create a step, and two more for every
 * 48 nodes; then one for PMIx or PMI2. The plugin takes one only if there are more. */
static int ports_of_srun(int nodes)
{
	return 2 + 2 * ((nodes + 47) / 48) + 1;
}

void check_srun_ports(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct facts *facts = checkup->count > 0 ? &checkup->tasks[0] : NULL;
	int nodes = facts && facts->job_nodes > facts->node_count ? facts->job_nodes
		: facts                                               ? facts->node_count
															  : 1;
	char value[16];
	if (!checkup->site || checkup->site->srun_ports < 0
		|| checkup->site->srun_ports >= ports_of_srun(nodes))
		return;
	snprintf(value, sizeof value, "%d", ports_of_srun(nodes));
	findings_add(findings, check, -1, value,
		"SrunPortRange has %d port%s, and an srun on %d node%s listens on %d",
		checkup->site->srun_ports, checkup->site->srun_ports == 1 ? "" : "s", nodes,
		nodes == 1 ? "" : "s", ports_of_srun(nodes));
}
