/* SPDX-License-Identifier: Apache-2.0 */
/* Rank variables. RANK and its like are always overwritten: what an outer environment left behind must not count. */
#include "plugin/rank_env.h"

#include <stdio.h>
#include <string.h>

#define PORT_FIRST 20000
#define PORT_COUNT 12000

/* The environment as Slurm made it: what an outer launcher left of our own names is not part of it. */
struct view {
	ident_env *env;
	void *arg;
};

static const char *slurm_only(const char *name, void *arg)
{
	const struct view *view = arg;
	return strncmp(name, "SLURM", 5) == 0 ? view->env(name, view->arg) : NULL;
}

int rank_env_first_host(const char *list, char *out, size_t size)
{
	size_t length = 0;
	while (*list && *list != ',') {
		if (*list == '[') {
			size_t digits = strspn(list + 1, "0123456789");
			const char *close = strchr(list, ']');
			if (digits == 0 || !close || length + digits >= size)
				return -1;
			memcpy(out + length, list + 1, digits);
			length += digits;
			list = close + 1;
		} else {
			if (length + 1 >= size)
				return -1;
			out[length++] = *list++;
		}
	}
	out[length] = '\0';
	return length > 0 ? 0 : -1;
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

bool rank_env_one_device(const char *devices)
{
	/* Slurm's words for "none". */
	if (!devices || !devices[0] || strcmp(devices, "-1") == 0 || strcmp(devices, "NoDevFiles") == 0)
		return false;
	return !strchr(devices, ',');
}

static int set_number(rank_env_set *set, const char *name, int value, void *arg)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	return set(name, text, arg);
}

/* A task that sees one device must use device 0, whatever its index on the node. */
static bool sees_one_device(ident_env *env, void *arg)
{
	const char *devices = env("CUDA_VISIBLE_DEVICES", arg);
	return rank_env_one_device(devices ? devices : env("ROCR_VISIBLE_DEVICES", arg));
}

static int set_ranks(const struct ident *ident, int attempt, ident_env *env, rank_env_set *set, void *arg)
{
	const struct { const char *name; int value; } rows[] = {
		{ "RANK", ident->rank },
		{ "WORLD_SIZE", ident->world_size },
		{ "LOCAL_RANK", sees_one_device(env, arg) ? 0 : ident->local_rank },
		{ "LOCAL_WORLD_SIZE", ident->local_world_size },
		{ "NODE_RANK", ident->node_rank },
		{ "GROUP_RANK", ident->node_rank },
		{ "GROUP_WORLD_SIZE", ident->node_count },
		{ "MUSTER", 1 },
		{ "MUSTER_ATTEMPT", attempt },
		{ "MUSTER_LOCAL_RANK", ident->local_rank },
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
		if (set_number(set, rows[i].name, rows[i].value, arg) < 0)
			return -1;
	return 0;
}

static bool same(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* The user's MASTER_ADDR and MASTER_PORT win. Ours, inherited from an outer step, are known by MUSTER_MASTER. */
static int set_master(const struct ident *ident, int attempt, const char *nodes, ident_env *env, rank_env_set *set,
	void *arg)
{
	char host[256], port[16], both[300];
	const char *user_host = env("MASTER_ADDR", arg), *user_port = env("MASTER_PORT", arg);
	if (user_host && user_port) {
		snprintf(both, sizeof both, "%s:%s", user_host, user_port);
		if (same(both, env("MUSTER_MASTER", arg)))
			user_host = user_port = NULL;
	}
	if (rank_env_first_host(nodes, host, sizeof host) < 0)
		return -1;
	snprintf(port, sizeof port, "%d", rank_env_port(ident->job, ident->step, attempt));
	snprintf(both, sizeof both, "%s:%s", host, port);
	if (!user_host && set("MASTER_ADDR", host, arg) < 0)
		return -1;
	if (!user_port && set("MASTER_PORT", port, arg) < 0)
		return -1;
	return user_host || user_port ? 0 : set("MUSTER_MASTER", both, arg);
}

int rank_env_make(int attempt, ident_env *env, rank_env_set *set, void *arg, struct err *err)
{
	struct view view = { env, arg };
	struct ident ident;
	if (ident_decide(&ident, NULL, slurm_only, &view, err) < 0)
		return -1;
	const char *nodes = env("SLURM_STEP_NODELIST", arg), *cpus = env("SLURM_CPUS_PER_TASK", arg);
	if (strcmp(ident.source, "slurm") != 0 || !nodes)
		return err_set(err, "ranks: couldn't read this task's place: SLURM_PROCID, SLURM_STEP_NUM_TASKS or "
			"SLURM_STEP_NODELIST is not set");
	if (set_ranks(&ident, attempt, env, set, arg) < 0 || set_master(&ident, attempt, nodes, env, set, arg) < 0)
		return err_set(err, "ranks: couldn't set the rank variables (SLURM_STEP_NODELIST=%s)", nodes);
	if (cpus && !env("OMP_NUM_THREADS", arg) && set("OMP_NUM_THREADS", cpus, arg) < 0)
		return err_set(err, "ranks: couldn't set OMP_NUM_THREADS");
	return 0;
}
