/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of what task_init makes of a task's environment: words of the form NAME=VALUE
 * with zero bytes between. What is accepted has ranks within their world and a place to meet, also
 * for a step that is started from inside that task; what is refused has its one line; and what
 * preflight says of it are single lines. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checks/check.h"
#include "plugin/rank_env.h"

#define VARIABLES_MAX 256
#define HELD \
	16 /* values that stay readable, as in the plugin: an older one that is used is a use after \
		  free */

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

struct world {
	char *variables[VARIABLES_MAX];
	int count;
};

static char *held[HELD];
static int next;

static char **find(struct world *world, const char *name)
{
	size_t length = strlen(name);
	for (int i = 0; i < world->count; i++)
		if (world->variables[i] && strncmp(world->variables[i], name, length) == 0
			&& world->variables[i][length] == '=')
			return &world->variables[i];
	return NULL;
}

static const char *env(const char *name, void *arg)
{
	char **found = find(arg, name);
	if (!found)
		return NULL;
	free(held[next]);
	held[next] = strdup(*found + strlen(name) + 1);
	const char *value = held[next];
	next = (next + 1) % HELD;
	return value;
}

static int set(const char *name, const char *value, void *arg)
{
	struct world *world = arg;
	char **found = find(world, name), *entry = NULL;
	if (value && asprintf(&entry, "%s=%s", name, value) < 0)
		return -1;
	if (!found && entry && world->count < VARIABLES_MAX)
		found = &world->variables[world->count++];
	else if (found)
		free(*found);
	if (found)
		*found = entry;
	return found || !entry ? 0 : -1;
}

static int number(struct world *world, const char *name)
{
	const char *text = env(name, world);
	if (!text || !text[0] || text[strspn(text, "0123456789")])
		abort();
	return atoi(text);
}

static void check_one_line(const char *text)
{
	if (!text[0] || strchr(text, '\n'))
		abort();
}

/* What preflight makes of it. */
static void check_findings(struct world *world, const struct ident *ident)
{
	struct facts facts;
	struct findings findings = { 0 };
	char line[1200];
	facts_from_env(&facts, ident, env, world);
	strcpy(facts.interfaces, "lo eth0 ib0");
	const struct checkup checkup = { &facts, 1, NULL };
	check_run(&checkup, true, &findings);
	for (int i = 0; i < findings.count; i++)
		check_one_line(finding_line(&findings.list[i], &checkup, line, sizeof line));
	findings_clear(&findings);
}

static const char *slurm_only(const char *name, void *arg)
{
	return strncmp(name, "SLURM", 5) == 0 ? env(name, arg) : NULL;
}

static bool make(struct world *world, int attempt, bool known)
{
	struct rank_env_place place = { attempt, known ? "10.0.0.1" : NULL, "ranks: not known" };
	struct err err = { .text = "" };
	struct ident ident;
	if (rank_env_make(&place, env, set, world, &err) < 0) {
		check_one_line(err.text);
		return false;
	}
	if (number(world, "RANK") >= number(world, "WORLD_SIZE")
		|| number(world, "LOCAL_RANK") >= number(world, "LOCAL_WORLD_SIZE")
		|| number(world, "GROUP_RANK") >= number(world, "GROUP_WORLD_SIZE")
		|| number(world, "MUSTER_ATTEMPT") != attempt)
		abort();
	if (!env("MASTER_ADDR", world) || !env("MASTER_PORT", world)
		|| !env("JAX_COORDINATOR_ADDRESS", world))
		abort();
	if (ident_decide(&ident, NULL, slurm_only, world, NULL) < 0)
		abort();
	check_findings(world, &ident);
	return true;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct world world = { .count = 0 };
	struct ident ident;
	struct err err = { .text = "" };
	const struct ident_pmix pmix = { 1, 2, 0, 1, 1, 2, "slurm.pmix.7.0" };
	if (size == 0)
		return 0;
	for (size_t at = 1; at < size && world.count < VARIABLES_MAX - 40;
		 at += strnlen((const char *)bytes + at, size - at) + 1)
		world.variables[world.count++] = strndup((const char *)bytes + at, size - at);
	if (ident_decide(&ident, bytes[0] & 1 ? &pmix : NULL, env, &world, &err) < 0)
		check_one_line(err.text);
	if (make(&world, bytes[0] >> 4, bytes[0] & 2) && bytes[0] & 4)
		make(&world, 3, true);
	for (int i = 0; i < world.count; i++)
		free(world.variables[i]);
	return 0;
}
