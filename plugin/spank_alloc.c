/* SPDX-License-Identifier: Apache-2.0 */
/* In sbatch and salloc: hands the user's choice to the srun commands of the job, which don't see
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
	/* What an outer job was told must not count as this command's option. */
	spank_args_hand_on(CHOICE_NONE);
	if (spank_args_register(spank, &err) < 0)
		slurm_error("muster: %s", err.text);
	return 0;
}

int spank_alloc_post_opt(spank_t spank)
{
	enum spank_choice choice =
		spank_args_first(spank_args_option(), spank_args_variable(getenv("MUSTER")));
	/* A job submitted from inside another one would take that one's count of restarts for its own:
	 * Slurm sets the variable from the second attempt on, and does not unset it in the first. */
	if (choice == CHOICE_ON || (choice == CHOICE_NONE && args.default_on))
		unsetenv("SLURM_RESTART_COUNT");
	if (choice == CHOICE_NONE)
		return 0;
	spank_args_tell_job(spank, choice);
	setenv("MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
	/* With --export=NONE only SLURM_* goes to the job: this does, and the batch step makes MUSTER
	 * of it. */
	spank_args_hand_on(choice);
	return 0;
}
