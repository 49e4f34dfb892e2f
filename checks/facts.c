/* SPDX-License-Identifier: Apache-2.0 */
/* Facts from a task's environment, and what follows from facts. */
#include "checks/facts.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/alone.h"
#include "common/hostlist.h"

struct source {
	ident_env *env;
	void *arg;
};

static const char *text_of(const struct source *source, const char *name)
{
	const char *value = source->env(name, source->arg);
	return value ? value : "";
}

static bool is_set(const struct source *source, const char *name)
{
	return text_of(source, name)[0] != '\0';
}

static void copy(char *out, size_t size, const struct source *source, const char *name)
{
	snprintf(out, size, "%s", text_of(source, name));
}

/* The digits at the start of a value: "4(x2)" is 4. */
static int number_of(const struct source *source, const char *name)
{
	const char *text = text_of(source, name);
	long value = 0;
	if (*text < '0' || *text > '9')
		return -1;
	for (; *text >= '0' && *text <= '9' && value <= INT_MAX; text++)
		value = value * 10 + (*text - '0');
	return value > INT_MAX ? -1 : (int)value;
}

static int entries(const char *list)
{
	int count = list[0] != '\0';
	for (; *list; list++)
		count += *list == ',';
	return count;
}

/* Slurm and CUDA write a list without a device in these ways. */
static bool names_no_device(const char *list)
{
	return !list[0] || strcmp(list, "-1") == 0 || strcmp(list, "NoDevFiles") == 0;
}

static void read_gpus(struct facts *facts, const struct source *source)
{
	/* Not SLURM_JOB_GPUS: a job with whole nodes (--exclusive) gets their GPUs without asking. */
	static const char *const asked[] = { "SLURM_GPUS", "SLURM_GPUS_PER_NODE",
		"SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK" };
	static const char *const shared[] = { "SLURM_SHARDS_ON_NODE",
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "NCCL_HOSTID", "NCCL_MULTI_RANK_GPU_ENABLE" };
	const char *list = source->env("CUDA_VISIBLE_DEVICES", source->arg);
	if (!list)
		list = source->env("ROCR_VISIBLE_DEVICES", source->arg);
	copy(facts->device_told, sizeof facts->device_told, source, "LOCAL_RANK");
	copy(facts->jax_devices, sizeof facts->jax_devices, source, "JAX_LOCAL_DEVICE_IDS");
	facts->gpus_hidden = list && names_no_device(list);
	if (list && !facts->gpus_hidden)
		snprintf(facts->visible, sizeof facts->visible, "%s", list);
	/* SLURM_STEP_GPUS has the step's GPUs, or only the task's if they are bound to tasks (seen in
	 * Slurm 22.05). */
	facts->gpus = number_of(source, "SLURM_GPUS_ON_NODE");
	if (facts->gpus < 0 && is_set(source, "SLURM_STEP_GPUS"))
		facts->gpus = entries(text_of(source, "SLURM_STEP_GPUS"));
	for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
		facts->gpus_asked |= is_set(source, asked[i]);
	for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
		facts->gpus_may_share |= is_set(source, shared[i]);
}

static void read_master(struct facts *facts, const struct source *source)
{
	snprintf(facts->master, sizeof facts->master, "%s", text_of(source, "MASTER_ADDR"));
	if (!facts->master[0]
		&& hostlist_nth(text_of(source, "SLURM_STEP_NODELIST"), 0, facts->master,
			   sizeof facts->master)
			< 0)
		facts->master[0] = '\0';
	facts->port = number_of(source, "MASTER_PORT");
}

void facts_from_env(struct facts *facts, const struct ident *ident, ident_env *env, void *arg)
{
	const struct source source = { env, arg };
	*facts = (struct facts) { .rank = ident->rank,
		.world_size = ident->world_size,
		.local_rank = ident->local_rank,
		.local_world_size = ident->local_world_size,
		.node_rank = ident->node_rank,
		.node_count = ident->node_count,
		.locked_memory = -1,
		.dir_free = -1,
		.cpus_online = -1 };
	snprintf(facts->node, sizeof facts->node, "%s", ident->node);
	/* In Slurm 26.05 a batch script has the other variables too. */
	facts->in_step = is_set(&source, "SLURM_STEP_ID") && is_set(&source, "SLURM_PROCID")
		&& is_set(&source, "SLURM_STEP_NUM_TASKS") && ident->step < IDENT_SPECIAL_STEPS;
	if (!alone_in_job(ident, env, arg, facts->alone, sizeof facts->alone))
		facts->alone[0] = '\0';
	facts->can_meet = is_set(&source, "PMIX_NAMESPACE") || is_set(&source, "PMI_FD")
		|| is_set(&source, "MUSTER_RDZV_DIR");
	facts->job_nodes = number_of(&source, "SLURM_JOB_NUM_NODES");
	facts->job_tasks = number_of(&source, "MUSTER_JOB_TASKS");
	facts->service = is_set(&source, "MUSTER_CKPTD");
	facts->cpus_per_task = number_of(&source, "SLURM_CPUS_PER_TASK");
	facts->cpus_on_node = number_of(&source, "SLURM_CPUS_ON_NODE");
	copy(facts->nccl_wanted, sizeof facts->nccl_wanted, &source, "NCCL_SOCKET_IFNAME");
	copy(facts->gloo_wanted, sizeof facts->gloo_wanted, &source, "GLOO_SOCKET_IFNAME");
	read_gpus(facts, &source);
	read_master(facts, &source);
}

/* ---- what follows from facts ---- */

/* Number `index` of the devices that the task may open; -1 if there are fewer. */
static int open_device(const struct facts *facts, int index)
{
	for (int device = 0; device < 63; device++)
		if (facts->devices_open >> device & 1 && index-- == 0)
			return device;
	return -1;
}

const char *facts_gpu(const struct facts *facts, char *out, size_t size)
{
	int count = entries(facts->visible), place = count > 1 ? facts->local_rank : 0, number, used;
	const char *entry = facts->visible;
	out[0] = '\0';
	if (place >= count)
		return out;
	for (int i = 0; i < place; i++)
		entry = strchr(entry, ',') + 1;
	int length = (int)strcspn(entry, ",");
	bool hidden = (facts->devices_present & ~facts->devices_open) != 0;
	if (hidden && sscanf(entry, "%d%n", &number, &used) == 1 && used == length) {
		if (open_device(facts, number) >= 0)
			snprintf(out, size, "%d", open_device(facts, number));
	} else {
		snprintf(out, size, "%.*s", length, entry);
	}
	return out;
}

bool facts_takes_interface(const char *words, const char *name)
{
	bool others = words[0] == '^', whole, match = false;
	words += others;
	whole = words[0] == '=';
	words += whole;
	for (; *words; words += strcspn(words, ","), words += *words == ',') {
		size_t length = strcspn(words, ":,");
		if (length > 0 && strncmp(name, words, length) == 0 && (!whole || !name[length]))
			match = true;
	}
	return match != others;
}

static bool has_cpu(const uint8_t *cpus, int cpu)
{
	return cpu < FACTS_CPU_BYTES * 8 && cpus[cpu / 8] >> (cpu % 8) & 1;
}

int facts_cpu_count(const struct facts *facts)
{
	int count = 0;
	for (int cpu = 0; cpu < FACTS_CPU_BYTES * 8; cpu++)
		count += has_cpu(facts->cpus, cpu);
	return count;
}

char *facts_cpu_list(const uint8_t *cpus, char *out, size_t size)
{
	size_t used = 0;
	out[0] = '\0';
	for (int cpu = 0; cpu < FACTS_CPU_BYTES * 8 && used + 14 < size; cpu++) {
		int last = cpu;
		if (!has_cpu(cpus, cpu))
			continue;
		while (has_cpu(cpus, last + 1))
			last++;
		used += (size_t)snprintf(out + used, size - used, last > cpu ? "%s%d-%d" : "%s%d",
			used ? "," : "", cpu, last);
		cpu = last;
	}
	return out;
}
