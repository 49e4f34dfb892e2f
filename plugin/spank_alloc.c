/* SPDX-License-Identifier: Apache-2.0 */
/* In sbatch and salloc: passes the user's choice on to the job's srun commands, which don't see
 * sbatch's options. */
#include <stdlib.h>

#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"

static struct spank_args args;

int spank_alloc_init(spank_t spank, int argc, char **argv)
{
	struct err err;
	if (spank_args_parse(argc, argv, &args, &err) < 0)
		slurm_error("muster: %s", err.text);
	/* The choice of an outer job must not count as this command's option. */
	spank_args_hand_on(CHOICE_NONE);
	if (spank_args_register(spank, &err) < 0)
		slurm_error("muster: %s", err.text);
	return 0;
}

int spank_alloc_post_opt(spank_t spank)
{
	enum spank_choice choice =
		spank_args_first(spank_args_option(), spank_args_variable(getenv("MUSTER")));
	/* A job submitted from inside another one would take over that one's restart count: Slurm sets
	 * the variable from the second attempt on, and does not unset it in the first. */
	if (choice == CHOICE_ON || (choice == CHOICE_NONE && args.default_on))
		unsetenv("SLURM_RESTART_COUNT");
	if (choice == CHOICE_NONE)
		return 0;
	spank_args_tell_job(spank, choice);
	setenv("MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
	/* With --export=NONE only SLURM_* reaches the job: this variable does, and the batch step sets
	 * MUSTER from it. */
	spank_args_hand_on(choice);
	return 0;
}
