/* SPDX-License-Identifier: Apache-2.0 */
/* A node's tasks exchange their facts in shared memory: nothing is sent, and nothing runs as
 * root. */
#include "config.h"

#include "plugin/preflight.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "checks/check.h"
#include "checks/facts_probe.h"
#include "checks/site.h"
#include "common/clock.h"

#define TASKS_MOST 4096
#define WAIT_SECONDS 5.0 /* for a task that may not even have started */
#define POLL_SECONDS 0.0005
#define MPI_LIST_SECONDS 5.0

enum verdict { UNDECIDED, BEGIN, STOP };

struct preflight {
	int tasks;
	atomic_int arrived, verdict;
	struct facts facts[]; /* each task's, by local rank */
};

int preflight_mode_of(const char *word)
{
	static const char *const words[] = {
		[PREFLIGHT_MODE_OFF] = "off",
		[PREFLIGHT_MODE_WARN] = "warn",
		[PREFLIGHT_MODE_ON] = "on",
	};
	for (int i = 0; i < 3; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	return -1;
}

struct preflight *preflight_share(int tasks)
{
	if (tasks < 1 || tasks > TASKS_MOST)
		return NULL;
	size_t size = sizeof(struct preflight) + (size_t)tasks * sizeof(struct facts);
	struct preflight *shared =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return NULL;
	shared->tasks = tasks;
	return shared;
}

/* ---- a task ---- */

struct task {
	ident_env *env;
	preflight_say *say;
	void *arg;
	enum preflight_mode mode;
	bool launches;
};

/* Only what Slurm has set: variables of an outer launcher do not describe this task. */
static const char *slurm_only(const char *name, void *arg)
{
	const struct task *task = arg;
	return strncmp(name, "SLURM", 5) == 0 ? task->env(name, task->arg) : NULL;
}

static bool look(struct task *task, struct facts *facts)
{
	struct ident ident;
	if (ident_decide(&ident, NULL, slurm_only, task, NULL) < 0)
		return false;
	facts_from_env(facts, &ident, task->env, task->arg);
	facts_probe_devices(facts);
	facts_probe_limits(facts);
	facts_probe_interfaces(facts);
	facts_probe_port(facts);
	/* A step's only task may drive all GPUs, which the step's size does not show. */
	facts->gpus_all_used = task->launches || facts->world_size == 1;
	/* A single task in a larger job is intended: it prepares something. */
	if (facts->world_size == 1 && (facts->job_nodes > 1 || facts->job_tasks > 1)) {
		facts->job_nodes = facts->job_tasks = facts->gpus = -1;
		facts->gpus_asked = false;
	}
	return true;
}

/* Whether this node reports a finding. Nodes are mostly alike, so a finding that concerns all and
 * does not prevent the start is reported once. */
static bool is_ours(const struct finding *finding, const struct facts *facts)
{
	return facts->node_rank == 0 || (finding->tasks && finding->check->severity == CHECK_ERROR);
}

static enum verdict judge(const struct task *task, const struct facts *facts, int count)
{
	const struct checkup checkup = { facts, count, NULL };
	struct findings findings = { 0 };
	enum verdict verdict = BEGIN;
	char line[1200];
	check_run(&checkup, true, &findings);
	for (int i = 0; i < findings.count; i++) {
		const struct finding *finding = &findings.list[i];
		bool stops = task->mode == PREFLIGHT_MODE_ON && finding->check->preflight == PREFLIGHT_STOP;
		size_t length = strlen(finding_line(finding, &checkup, line, sizeof line));
		if (stops)
			snprintf(line + length, sizeof line - length,
				" (the step ends here; MUSTER_PREFLIGHT=warn lets it begin)");
		if (is_ours(finding, facts))
			task->say(task->arg, line);
		if (stops)
			verdict = STOP;
	}
	findings_clear(&findings);
	return verdict;
}

static enum verdict wait_for_verdict(struct preflight *shared)
{
	struct deadline deadline = deadline_in(WAIT_SECONDS);
	int verdict;
	while ((verdict = atomic_load(&shared->verdict)) == UNDECIDED
		&& deadline_sleep(deadline, POLL_SECONDS))
		;
	return (enum verdict)verdict;
}

bool preflight_task(struct preflight *shared, enum preflight_mode mode, bool launches,
	ident_env *env, preflight_say *say, void *arg)
{
	struct task task = { env, say, arg, mode, launches };
	struct facts own;
	if (!shared || mode == PREFLIGHT_MODE_OFF || !look(&task, &own)
		|| own.local_world_size != shared->tasks)
		return true;
	if (own.local_rank < 0 || own.local_rank >= shared->tasks)
		return true;
	shared->facts[own.local_rank] = own;
	if (atomic_fetch_add(&shared->arrived, 1) + 1 == own.local_world_size) {
		enum verdict verdict = judge(&task, shared->facts, shared->tasks);
		atomic_store(&shared->verdict, verdict);
		return verdict != STOP;
	}
	/* Only checks of GPUs can stop a step. */
	return own.gpus <= 0 || mode != PREFLIGHT_MODE_ON || wait_for_verdict(shared) != STOP;
}

/* ---- srun ---- */

const char *preflight_mpi(preflight_say *say, void *arg)
{
	struct site site;
	const struct facts none = { .gpus = -1, .job_nodes = -1, .job_tasks = -1 };
	const struct checkup checkup = { &none, 1, &site };
	struct findings findings = { 0 };
	char line[1200];
	if (site_mpi_installed("pmix") || site_mpi_installed("pmi2"))
		return site_mpi_installed("pmix") ? "pmix" : "pmi2";
	site_init(&site);
	site_ask_mpi(&site, MPI_LIST_SECONDS);
	check_run(&checkup, true, &findings);
	for (int i = 0; i < findings.count; i++)
		say(arg, finding_line(&findings.list[i], &checkup, line, sizeof line));
	bool has = findings.count == 0;
	findings_clear(&findings);
	return !has ? NULL : strstr(site.mpi, "pmi2") && !strstr(site.mpi, "pmix") ? "pmi2" : "pmix";
}
