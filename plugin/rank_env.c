/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the rank variables. RANK and the like are always overwritten, since values from an outer
 * environment must not count. */
#include "plugin/rank_env.h"

#include <stdio.h>
#include <string.h>

/* Records which of the user's variables we have set, for a step that is started from inside this
 * one. */
#define DEFAULTS "MUSTER_DEFAULTS"
#define PORT_FIRST 20000
#define PORT_COUNT 12000

struct task {
	ident_env *env;
	rank_env_set *set;
	void *arg; /* for both functions */
	struct ident ident;
	bool one_device;
};

/* Only what Slurm has set: our variables from an outer launcher do not count. */
static const char *slurm_only(const char *name, void *arg)
{
	const struct task *task = arg;
	return strncmp(name, "SLURM", 5) == 0 ? task->env(name, task->arg) : NULL;
}

int rank_env_port(uint32_t job, uint32_t step, int attempt)
{
	/* FNV-1a over the three numbers (http://www.isthe.com/chongo/tech/comp/fnv). */
	const uint32_t words[] = { job, step, (uint32_t)attempt };
	uint32_t hash = 2166136261u;
	for (int i = 0; i < 3; i++)
		for (int shift = 0; shift < 32; shift += 8)
			hash = (hash ^ (words[i] >> shift & 0xff)) * 16777619u;
	return PORT_FIRST + (int)(hash % PORT_COUNT);
}

int rank_env_second_port(int port)
{
	return PORT_FIRST + (port - PORT_FIRST + PORT_COUNT / 2) % PORT_COUNT;
}

bool rank_env_one_device(const char *devices)
{
	/* Slurm's values for "none". */
	if (!devices || !devices[0] || strcmp(devices, "-1") == 0 || strcmp(devices, "NoDevFiles") == 0)
		return false;
	return !strchr(devices, ',');
}

/* A task that sees one device must use device 0, whatever its index on the node. */
static bool sees_one_device(ident_env *env, void *arg)
{
	const char *devices = env("CUDA_VISIBLE_DEVICES", arg);
	return rank_env_one_device(devices ? devices : env("ROCR_VISIBLE_DEVICES", arg));
}

static int set_ranks(const struct task *task, int attempt)
{
	const struct ident *ident = &task->ident;
	const struct {
		const char *name;
		int value;
	} rows[] = {
		{ "RANK", ident->rank },
		{ "WORLD_SIZE", ident->world_size },
		{ "LOCAL_RANK", task->one_device ? 0 : ident->local_rank },
		{ "LOCAL_WORLD_SIZE", ident->local_world_size },
		{ "NODE_RANK", ident->node_rank },
		{ "GROUP_RANK", ident->node_rank },
		{ "GROUP_WORLD_SIZE", ident->node_count },
		{ "ROLE_RANK", ident->rank },
		{ "ROLE_WORLD_SIZE", ident->world_size },
		{ "MUSTER", 1 },
		{ "MUSTER_ATTEMPT", attempt },
		{ "MUSTER_LOCAL_RANK", ident->local_rank },
	};
	char text[16];
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		snprintf(text, sizeof text, "%d", rows[i].value);
		if (task->set(rows[i].name, text, task->arg) < 0)
			return -1;
	}
	return task->set("ROLE_NAME", "default", task->arg);
}

/* ---- variables whose value from the user wins ---- */

struct default_value {
	const char *name;
	const char *value; /* NULL: unset in this step */
};

static const char *value_of(const struct task *task, const char *name)
{
	return task->env(name, task->arg);
}

/* Whether MUSTER_DEFAULTS, which lists NAME=VALUE, records that we have set a variable to this
 * value. */
static bool is_ours(const char *ours, const char *name, const char *value)
{
	size_t name_length = strlen(name), value_length = strlen(value);
	for (; ours && *ours; ours += strcspn(ours, " "), ours += strspn(ours, " "))
		if (strncmp(ours, name, name_length) == 0 && ours[name_length] == '='
			&& strncmp(ours + name_length + 1, value, value_length) == 0
			&& strchr(" ", ours[name_length + 1 + value_length])) /* a space or the end */
			return true;
	return false;
}

static const char *users_own(const struct task *task, const char *name)
{
	const char *value = value_of(task, name);
	return value && !is_ours(value_of(task, DEFAULTS), name, value) ? value : NULL;
}

static int set_defaults(const struct task *task, const struct default_value *rows, size_t count)
{
	char ours[1024] = "";
	size_t used = 0;
	for (size_t i = 0; i < count; i++) {
		const char *name = rows[i].name, *value = rows[i].value;
		if (users_own(task, name))
			continue;
		if (value)
			used += (size_t)snprintf(ours + used, sizeof ours - used, "%s%s=%s", used ? " " : "",
				name, value);
		if (used >= sizeof ours)
			return -1;
		if ((value || value_of(task, name)) && task->set(name, value, task->arg) < 0)
			return -1;
	}
	return task->set(DEFAULTS, ours, task->arg);
}

/* Whether all nodes have the same number of tasks: Slurm's code is then a single run, 2(x4).
 * Lightning requires SLURM_NTASKS_PER_NODE if a step has several tasks, but Slurm sets it only if
 * the user gave the option. */
static bool is_even(const struct task *task)
{
	const char *coded = value_of(task, "SLURM_STEP_TASKS_PER_NODE");
	return coded && !strchr(coded, ',');
}

/* JAX's service runs on rank 0's host too, so the user's MASTER_ADDR counts for both. */
static int write_coordinator(const struct task *task, const char *host, const char *port, char *out,
	size_t size)
{
	bool ipv6 = strchr(host, ':') != NULL;
	const char *users_port = users_own(task, "JAX_COORDINATOR_PORT");
	int length = snprintf(out, size, "%s%s%s:%s", ipv6 ? "[" : "", host, ipv6 ? "]" : "",
		users_port ? users_port : port);
	return length < (int)size ? 0 : -1;
}

static int set_meeting(const struct task *task, const struct rank_env_place *place, struct err *err)
{
	const char *users_host = users_own(task, "MASTER_ADDR"),
			   *host = users_host ? users_host : place->master;
	int port = rank_env_port(task->ident.job, task->ident.step, place->attempt);
	char first[16], second[16], tasks[16], coordinator[300];
	if (!host)
		return err_set(err, "%s", place->unknown);
	snprintf(first, sizeof first, "%d", port);
	snprintf(second, sizeof second, "%d", rank_env_second_port(port));
	snprintf(tasks, sizeof tasks, "%d", task->ident.local_world_size);
	if (write_coordinator(task, host, second, coordinator, sizeof coordinator) < 0)
		return err_set(err,
			"ranks: couldn't use MASTER_ADDR with JAX_COORDINATOR_PORT: too long: %.100s…", host);
	const struct default_value rows[] = {
		{ "MASTER_ADDR", place->master },
		{ "MASTER_PORT", first },
		{ "JAX_COORDINATOR_ADDRESS", coordinator },
		{ "JAX_COORDINATOR_PORT", second },
		{ "JAX_LOCAL_DEVICE_IDS", task->one_device ? "0" : NULL },
		{ "OMP_NUM_THREADS", value_of(task, "SLURM_CPUS_PER_TASK") },
		{ "SLURM_NTASKS_PER_NODE", is_even(task) ? tasks : NULL },
	};
	if (set_defaults(task, rows, sizeof rows / sizeof rows[0]) < 0)
		return err_set(err, "ranks: couldn't set MASTER_ADDR=%.200s and the variables beside it",
			host);
	return 0;
}

int rank_env_make(const struct rank_env_place *place, ident_env *env, rank_env_set *set, void *arg,
	struct err *err)
{
	struct task task = { .env = env,
		.set = set,
		.arg = arg,
		.one_device = sees_one_device(env, arg) };
	if (ident_decide(&task.ident, NULL, slurm_only, &task, err) < 0)
		return -1;
	if (strcmp(task.ident.source, "slurm") != 0)
		return err_set(err,
			"ranks: couldn't read this task's place: SLURM_PROCID, SLURM_STEP_ID or "
			"SLURM_STEP_NUM_TASKS is not set");
	if (set_ranks(&task, place->attempt) < 0)
		return err_set(err, "ranks: couldn't set RANK and the variables beside it");
	return set_meeting(&task, place, err);
}
