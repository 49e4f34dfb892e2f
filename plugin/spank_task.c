/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about slurmstepd's step, and programs that it runs as the job's user. */
#include "plugin/spank_task.h"

#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/ident.h"
#include "common/run_as_user.h"

uint32_t spank_task_item(spank_t spank, enum spank_item name)
{
	uint32_t value = 0;
	return spank_get_item(spank, name, &value) == ESPANK_SUCCESS ? value : 0;
}

/* Steps that srun started. The batch script, the extern and the interactive step have no ranks. */
bool spank_task_is_step(spank_t spank)
{
	uint32_t step = spank_task_item(spank, S_JOB_STEPID);
	return step != SLURM_BATCH_SCRIPT && step != SLURM_EXTERN_CONT
		&& step != SLURM_INTERACTIVE_STEP;
}

#define VARIABLE_MAX (1 << 17) /* bytes: Linux starts no program with a longer one */

/* A large step's node list is long, so the buffers grow. */
const char *spank_task_env(const char *name, void *arg)
{
	static struct {
		char *text;
		size_t size;
	} held[16];
	static int next;
	char **text = &held[next].text;
	size_t *size = &held[next].size;
	next = (next + 1) % 16;
	for (;;) {
		spank_err_t rc = *size ? spank_getenv(arg, name, *text, (int)*size) : ESPANK_NOSPACE;
		if (rc != ESPANK_NOSPACE || *size >= VARIABLE_MAX)
			return rc == ESPANK_SUCCESS ? *text : NULL;
		char *larger = realloc(*text, *size ? *size * 4 : 512);
		if (!larger)
			return NULL;
		*text = larger;
		*size = *size ? *size * 4 : 512;
	}
}

void spank_task_options(spank_t spank, bool *overlap, bool *pty)
{
	const char *places = spank_task_env(SPANK_TASK_ASIDE, spank);
	int places_of[2] = { 0, 0 }, argc = 0;
	char **argv = NULL;
	if (places && sscanf(places, "%d %d", &places_of[0], &places_of[1]) == 2)
		spank_get_item(spank, S_JOB_ARGV, &argc, &argv);
	/* A word of the program's own is not an option of srun. A step that muster-run begins anew
	 * overlaps nothing but what is left of the one before. */
	*overlap = places_of[0] > argc && !spank_task_env(IDENT_RESTART, spank);
	*pty = places_of[1] > argc;
}

/* S_SLURM_RESTART_COUNT is 0 in the steps of a restarted job (Slurm 22.05); the variable is not set
 * in a first attempt. */
uint32_t spank_task_attempt(spank_t spank)
{
	const char *count = spank_task_env("SLURM_RESTART_COUNT", spank);
	return count ? (uint32_t)strtoul(count, NULL, 10) : 0;
}

/* A clean environment for muster-requeue and the like: they need Slurm's configuration and nothing
 * of the job's. The job's own SLURM_CONF is not used either: it would choose the libraries that the
 * program loads, and the program runs outside the job's limits. */
static void helper_env(char *conf, size_t size, char **env)
{
	const char *path = getenv("SLURM_CONF");
	snprintf(conf, size, "SLURM_CONF=%s", path ? path : "");
	env[0] = "PATH=/usr/bin:/bin";
	env[1] = path ? conf : NULL;
	env[2] = NULL;
}

int spank_task_run(spank_t spank, char **argv, double seconds, char *output, size_t size,
	struct err *err)
{
	char conf[4200], *env[3];
	int group_count = 0;
	gid_t *groups = NULL;
	helper_env(conf, sizeof conf, env);
	spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &group_count);
	struct run_user user = { spank_task_item(spank, S_JOB_UID), spank_task_item(spank, S_JOB_GID),
		groups, (size_t)group_count };
	return run_as_user(&user, argv, env, seconds, output, size, err);
}
