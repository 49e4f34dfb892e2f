/* SPDX-License-Identifier: Apache-2.0 */
/* muster-ckpt: inspects and manages checkpoints. Each subcommand has its own file. */
#include "config.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/command/ckpt_cmd.h"
#include "common/descriptors.h"

static const struct command {
	const char *name, *arguments, *help;
	ckpt_cmd_run *run;
} commands[] = {
	{ "ls", "DIR", "list the checkpoints of a directory", ckpt_cmd_ls },
	{ "show", "DIR|STEPDIR [STEP]", "show one: its configuration, files and tensors",
		ckpt_cmd_show },
	{ "verify", "DIR|STEPDIR [STEP...]", "find damage, and show where it is", ckpt_cmd_verify },
	{ "diff", "A B", "compare two, tensor by tensor", ckpt_cmd_diff },
	{ "prune", "DIR --keep-last N", "remove old ones", ckpt_cmd_prune },
	{ "pin", "DIR STEP", "keep one for ever", ckpt_cmd_pin },
	{ "unpin", "DIR STEP", "no longer", ckpt_cmd_unpin },
	{ "history", "DIR", "list the attempts of a run and what ended them", ckpt_cmd_history },
	{ "import", "SRC DIR", "make a checkpoint from a Hugging Face GPT-2 or a model of llm.c",
		ckpt_cmd_import },
	{ "export", "DIR|STEPDIR OUT", "make a Hugging Face directory from the model of one",
		ckpt_cmd_export },
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static int help(void)
{
	puts("Usage: muster-ckpt COMMAND [OPTION...] ARGUMENT...\n"
		 "Shows and manages the checkpoints of muster-train.\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-8s %-22s  %s\n", commands[i].name, commands[i].arguments, commands[i].help);
	puts("\nDIR is a checkpoint directory, STEPDIR a folder in it such as DIR/step-00001000.\n"
		 "Every command has --help and --json. Nothing but prune, pin, unpin, import and export "
		 "changes anything.\n\n"
		 "Exit status: 0 done, 1 a fault (diff: they differ), 2 wrong usage, 65 damage or unusable "
		 "data, 69 a disk that\n"
		 "fails or is full.");
	return ckpt_cmd_flush();
}

static int run(const struct command *command, int argc, char **argv)
{
	char name[64];
	snprintf(name, sizeof name, "muster-ckpt %s", command->name);
	argv[0] = name;
	return command->run(argc, argv);
}

int main(int argc, char **argv)
{
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0))
		return help();
	if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
		puts(PACKAGE_STRING);
		return ckpt_cmd_flush();
	}
	for (size_t i = 0; argc >= 2 && i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return run(&commands[i], argc - 1, argv + 1);
	if (argc >= 2)
		fprintf(stderr, "muster-ckpt: there is no command \"%s\" (see muster-ckpt --help)\n",
			argv[1]);
	else
		fputs("muster-ckpt: give a command (see muster-ckpt --help)\n", stderr);
	return EXIT_USAGE;
}
