/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of how a step was started: GPUs, CPUs, its size, PMIx. */
#include <stdio.h>
#include <string.h>

#include "checks/check.h"
#include "common/alone.h"

static bool same_node(const struct facts *a, const struct facts *b)
{
	return strcmp(a->node, b->node) == 0;
}

/* A number as text, for a remedy. */
struct number {
	char text[16];
};

static struct number number(int value)
{
	struct number number;
	snprintf(number.text, sizeof number.text, "%d", value);
	return number;
}

/* ---- GPUs ---- */

void check_gpu_none(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		/* A site may leave the list unset (gres.conf, Flags=no_gpu_env): then every device that the
		 * task may open is visible. */
		if (task->gpus > 0
			&& (task->gpus_hidden || (!task->visible[0] && !task->devices_open && task->in_step)))
			findings_add(findings, check, i, NULL, "sees none of the step's GPUs (%s)",
				task->gpus_hidden ? "CUDA_VISIBLE_DEVICES names none"
								  : "CUDA_VISIBLE_DEVICES is not set");
	}
}

void check_gpu_step(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		bool asked = task->gpus_asked || (checkup->site && checkup->site->job_gpus);
		if (task->in_step && asked && task->gpus <= 0)
			findings_add(findings, check, i, NULL, "the job asked for GPUs and this step has none");
	}
}

static bool too_few(const struct facts *task)
{
	return task->in_step && task->gpus > 0 && !task->gpus_may_share
		&& task->local_world_size > task->gpus;
}

void check_gpu_too_few(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (too_few(&checkup->tasks[i]))
			findings_add(findings, check, i, number(checkup->tasks[i].gpus).text,
				"%d tasks a node and %d GPU%s", checkup->tasks[i].local_world_size,
				checkup->tasks[i].gpus, checkup->tasks[i].gpus == 1 ? "" : "s");
}

static int seen(const struct facts *task)
{
	int count = task->visible[0] != '\0';
	for (const char *c = task->visible; *c; c++)
		count += *c == ',';
	return count;
}

/* A task may have several GPUs on purpose (--gpus-per-task=2): then it sees fewer than the step
 * has. */
void check_gpu_idle(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		bool spread = seen(task) > 0 && seen(task) < task->gpus
			&& seen(task) * task->local_world_size >= task->gpus;
		if (task->in_step && task->gpus > task->local_world_size && !spread && !task->gpus_all_used)
			findings_add(findings, check, i, number(task->gpus).text,
				"%d task%s a node and %d GPUs", task->local_world_size,
				task->local_world_size == 1 ? "" : "s", task->gpus);
	}
}

void check_gpu_shared(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	char mine[80], theirs[80];
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		if (!facts_gpu(task, mine, sizeof mine)[0] || task->gpus_may_share || too_few(task))
			continue;
		for (int k = 0; k < checkup->count; k++) {
			const struct facts *other = &checkup->tasks[k];
			if (k == i || !same_node(task, other)
				|| strcmp(facts_gpu(other, theirs, sizeof theirs), mine) != 0)
				continue;
			findings_add(findings, check, i, NULL, "GPU %s of the node is used by several ranks",
				mine);
			break;
		}
	}
}

/* If the task sees several GPUs, its script may number them itself. */
static void judge_number(const struct check *check, struct findings *findings, int task,
	const char *name, const char *value)
{
	if (value[0] && strcmp(value, "0") != 0)
		findings_add(findings, check, task, name,
			"%s=%s, and the task sees one GPU, which is number 0 to it", name, value);
}

void check_gpu_number(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		if (!task->in_step || task->gpus <= 0 || seen(task) != 1)
			continue;
		judge_number(check, findings, i, "LOCAL_RANK", task->device_told);
		judge_number(check, findings, i, "JAX_LOCAL_DEVICE_IDS", task->jax_devices);
	}
}

void check_gpu_hidden(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		int64_t siblings = 0;
		for (int k = 0; k < checkup->count; k++)
			if (same_node(task, &checkup->tasks[k]))
				siblings |= checkup->tasks[k].devices_open;
		if (task->devices_open && (siblings & task->devices_present & ~task->devices_open))
			findings_add(findings, check, i,
				number(task->gpus > 0 ? task->gpus : task->local_world_size).text,
				"may not open the GPUs of the other ranks of its node");
	}
}

/* ---- CPUs ---- */

/* CPUs that a rank should have, at most those that exist; 0 if nothing tells. */
static int cpus_wanted(const struct facts *task)
{
	int wanted = task->cpus_per_task > 0 ? task->cpus_per_task
		: task->cpus_on_node > 0         ? task->cpus_on_node / task->local_world_size
										 : 0;
	return task->cpus_online > 0 && wanted > task->cpus_online ? task->cpus_online : wanted;
}

void check_cpu_few(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		int usable = facts_cpu_count(task), wanted = cpus_wanted(task);
		bool asked = task->cpus_per_task > 0;
		if (task->in_step && usable > 0 && usable < wanted && (asked || usable == 1))
			findings_add(findings, check, i, number(asked ? task->cpus_per_task : wanted).text,
				"may use %d CPU%s of %d%s", usable, usable == 1 ? "" : "s",
				asked ? task->cpus_per_task : wanted,
				asked ? " asked for" : " that the step has for it");
	}
}

static bool overlap(const struct facts *a, const struct facts *b)
{
	for (int i = 0; i < FACTS_CPU_BYTES; i++)
		if (a->cpus[i] & b->cpus[i])
			return true;
	return false;
}

/* Ranks that may use all CPUs are not bound, and the kernel spreads them. */
void check_cpu_overlap(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	char list[80];
	for (int i = 0; i < checkup->count; i++) {
		const struct facts *task = &checkup->tasks[i];
		int usable = facts_cpu_count(task),
			each = task->cpus_per_task > 0 ? task->cpus_per_task : 1, sharing = 0;
		for (int k = 0; k < checkup->count; k++)
			sharing += same_node(task, &checkup->tasks[k]) && overlap(task, &checkup->tasks[k]);
		if (usable < task->cpus_online && sharing > 1 && usable < sharing * each)
			findings_add(findings, check, i, number(each).text,
				"%d ranks of a node are bound to CPU %s", sharing,
				facts_cpu_list(task->cpus, list, sizeof list));
	}
}

/* ---- the step's size, and PMIx ---- */

void check_srun_missing(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].alone[0])
			findings_add(findings, check, -1, NULL, "%s", checkup->tasks[i].alone);
}

void check_step_nodes(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct facts *task = checkup->tasks;
	if (task->in_step && task->job_tasks != 0 && task->job_nodes > task->node_count)
		findings_add(findings, check, -1, number(task->job_nodes).text,
			"the step runs on %d of the job's %d nodes", task->node_count, task->job_nodes);
}

void check_step_tasks(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const struct facts *task = checkup->tasks;
	int submitted =
		checkup->site && checkup->site->job_known ? checkup->site->job_tasks : task->job_tasks;
	if (task->in_step && task->job_tasks != 0 && submitted > task->world_size
		&& task->job_nodes <= task->node_count)
		findings_add(findings, check, -1, number(submitted).text,
			"the world size is %d, and the job was submitted for %d tasks", task->world_size,
			submitted);
}

void check_pmix_missing(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const char *types = checkup->site ? checkup->site->mpi : "";
	if (types[0] && !strstr(types, "pmix") && !strstr(types, "pmi2"))
		findings_add(findings, check, -1, NULL,
			"srun --mpi=list has neither pmix nor pmi2, only %s", types);
}

void check_pmi2_only(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	const char *types = checkup->site ? checkup->site->mpi : "";
	if (strstr(types, "pmi2") && !strstr(types, "pmix"))
		findings_add(findings, check, -1, NULL, "srun --mpi=list has no pmix, only %s", types);
}

void check_pmix_step(const struct check *check, const struct checkup *checkup,
	struct findings *findings)
{
	for (int i = 0; i < checkup->count; i++)
		if (checkup->tasks[i].in_step && checkup->tasks[i].world_size > 1
			&& !checkup->tasks[i].can_meet)
			findings_add(findings, check, i, NULL, ALONE_NO_PMIX);
}
