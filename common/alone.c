/* SPDX-License-Identifier: Apache-2.0 */
/* Only a process whose `ident` says "single" or a special step can have lost its srun: mpirun,
 * torchrun and srun's steps give each rank an identity. */
#include "common/alone.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/number.h"

#define MOST (1 << 24)

/* 0 when unset or malformed. */
static int64_t number_of(const char *name, ident_env *env, void *arg)
{
	const char *text = env(name, arg);
	int64_t value;
	return text && number_whole(text, 1, MOST, &value) ? value : 0;
}

static bool is_of_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* As a whole word; a path may come before it. */
static bool has_word(const char *text, const char *word)
{
	const size_t length = strlen(word);
	for (const char *at = text; (at = strstr(at, word)); at++)
		if ((at == text || (!is_of_word(at[-1]) && at[-1] != '.')) && !is_of_word(at[length]))
			return true;
	return false;
}

bool alone_names_launcher(const char *text)
{
	static const char *const words[] = { "mpirun", "mpiexec", "orterun", "prterun", "prun",
		"torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed",
		"horovodrun" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (has_word(text, words[i]))
			return true;
	return false;
}

bool alone_job_is_larger(ident_env *env, void *arg, char *out, size_t size)
{
	int64_t nodes = number_of("SLURM_JOB_NUM_NODES", env, arg),
			tasks = number_of("SLURM_NTASKS", env, arg);
	/* Newer releases of Slurm leave SLURM_NTASKS unset when only the tasks per node were given. */
	if (!tasks)
		tasks = nodes * number_of("SLURM_NTASKS_PER_NODE", env, arg);
	if (tasks < nodes)
		tasks = nodes;
	snprintf(out, size, "%lld node%s and %lld task%s", (long long)nodes, nodes == 1 ? "" : "s",
		(long long)tasks, tasks == 1 ? "" : "s");
	return nodes > 0 && tasks > 1;
}

bool alone_in_job(const struct ident *ident, ident_env *env, void *arg, char *out, size_t size)
{
	char given[60];
	bool in_step = strcmp(ident->source, "single") != 0 && ident->step < IDENT_SPECIAL_STEPS;
	if (!ident->job || in_step || ident->world_size > 1
		|| !alone_job_is_larger(env, arg, given, sizeof given))
		return false;
	snprintf(out, size,
		"this process runs alone on %.200s, outside of the steps of job %u, which has %s",
		ident->node, ident->job, given);
	return true;
}
