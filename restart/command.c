/* SPDX-License-Identifier: Apache-2.0 */
/* Only the words before the first that is no option are known to be srun's. */
#include "config.h"

#include "restart/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OURS 4

static bool chooses(const char *word)
{
	static const char *const words[] = { "-N", "-n", "-w", "-x", "-r", "--nodes", "--ntasks",
		"--nodelist", "--exclude", "--relative", "--nodefile", "--distribution=arbitrary",
		"-marbitrary" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t length = strlen(words[i]);
		if (strncmp(word, words[i], length) == 0
			&& (words[i][1] != '-' || !word[length] || word[length] == '='))
			return true;
	}
	return false;
}

int command_check(char *const *argv, struct err *err)
{
	const char *slash = argv[0] ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : argv[0];
	if (!name || strcmp(name, "srun") != 0)
		return err_fail(err, EXIT_USAGE,
			"give srun and its program after --, as in: muster-run -- srun muster-train …");
	/* Which of the step's nodes is which must be known from their list. */
	const char *distribution = getenv("SLURM_DISTRIBUTION");
	if (distribution && strncmp(distribution, "arbitrary", 9) == 0)
		return err_fail(err, EXIT_USAGE,
			"SLURM_DISTRIBUTION=arbitrary: use another distribution, or srun without muster-run");
	for (char *const *word = argv + 1; *word && (*word)[0] == '-'; word++)
		if (chooses(*word))
			return err_fail(err, EXIT_USAGE,
				"leave %.100s out of srun's options, since muster-run chooses the nodes: give "
				"sbatch --nodes and --ntasks-per-node",
				*word);
	return 0;
}

char **command_make(char *const *argv, const struct command_step *step, char **text)
{
	size_t count = 0, size = strlen(step->nodes) + 100;
	while (argv[count])
		count++;
	char **made = calloc(count + OURS + 1, sizeof *made);
	*text = malloc(size);
	if (!made || !*text) {
		free(made);
		free(*text);
		return NULL;
	}
	char **word = made, *at = *text;
	*word++ = argv[0];
	*word++ = at;
	at += sprintf(at, "--nodes=%d", step->node_count) + 1;
	*word++ = at;
	at += sprintf(at, "--ntasks=%d", step->tasks) + 1;
	*word++ = at;
	sprintf(at, "--nodelist=%s", step->nodes);
	if (step->again)
		*word++ = "--overlap";
	memcpy(word, argv + 1, (count - 1) * sizeof *word);
	return made;
}
