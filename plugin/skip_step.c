/* SPDX-License-Identifier: Apache-2.0 */
/* Uses up a step ID with a step that takes some hundredths of a second: Slurm lets nobody choose
 * one. */
#include "plugin/skip_step.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/number.h"
#include "common/run_as_user.h"

bool skip_step_is_due(ident_env *env, void *arg)
{
	const char *count = env("SLURM_RESTART_COUNT", arg), *restart = env(IDENT_RESTART, arg);
	int64_t attempt;
	if (!env("SLURM_JOB_ID", arg) || env("SLURM_STEP_NUM_TASKS", arg) || env("SLURM_HET_SIZE", arg)
		|| (restart && strcmp(restart, "0") != 0))
		return false;
	return count && number_whole(count, 0, INT_MAX, &attempt) && attempt % 2 == 1;
}

/* Whether a variable may change what srun asks for. */
static bool is_option(const char *variable)
{
	static const char *const kept[] = { "SLURM_CONF=", "SLURM_JOB_ID=", "SLURM_JWT=" };
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
		if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
			return false;
	return strncmp(variable, "SLURM_", 6) == 0 || strncmp(variable, "SRUN_", 5) == 0;
}

/* The pointers without those of options; the caller frees the array alone. */
static char **without_options(char *const *environment)
{
	size_t count = 0;
	while (environment[count])
		count++;
	char **left = calloc(count + 1, sizeof *left);
	for (size_t from = 0, to = 0; left && from < count; from++)
		if (!is_option(environment[from]))
			left[to++] = environment[from];
	return left;
}

int skip_step_make(const char *srun, char *const *environment, double seconds, struct err *err)
{
	/* It shares what it gets with the step that follows, and needs no GPU and no memory of its own.
	 */
	char *argv[] = { (char *)srun, "--quiet", "--no-muster", "--job-name=muster-skip", "--nodes=1",
		"--ntasks=1", "--overlap", "--gres=none", "--mem=0", "--mpi=none", "--input=none",
		"--prolog=none", "--epilog=none", "/bin/true", NULL };
	char output[300];
	AUTO_FREE gid_t *groups = NULL;
	struct run_user user = { .uid = getuid(), .gid = getgid() };
	AUTO_FREE char **env = without_options(environment);
	if (!env)
		return err_set(err, "step: no memory");
	if (run_user_groups(user.uid, user.gid, &groups, &user.group_count, err) < 0 && !groups)
		return -1;
	user.groups = groups;
	if (run_as_user(&user, argv, env, seconds, output, sizeof output, err) < 0)
		return -1;
	output[strcspn(output, "\n")] = '\0';
	return output[0] ? err_set(err, "%s", output) : 0;
}
