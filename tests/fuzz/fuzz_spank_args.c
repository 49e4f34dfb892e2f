/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer harness of the plugin's arguments and of a command line with its options: what is
 * accepted lies in its range, what is refused has its one line, and the last option before "--" is
 * the one that counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/job_folder.h"
#include "plugin/spank_args.h"

#define WORDS_MAX 64

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

/* ---- what Slurm would do ---- */

/* Slurm's header declares them without a prototype. */
spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	return ESPANK_SUCCESS;
}

spank_err_t spank_option_getopt(spank_t spank, struct spank_option *option, char **value)
{
	return ESPANK_ERROR;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value,
	int overwrite)
{
	return ESPANK_SUCCESS;
}

/* ---- the checks ---- */

static void check_path(const char *path)
{
	if (path && path[0] != '/')
		abort();
}

static void check_arguments(int argc, char **argv)
{
	struct spank_args args;
	struct err err = { .text = "" };
	char socket[JOB_FOLDER_SOCKET_SIZE];
	if (spank_args_parse(argc, argv, &args, &err) < 0) {
		if (!err.text[0] || strchr(err.text, '\n'))
			abort();
	} else if (err.text[0]) {
		abort();
	}
	check_path(args.requeue);
	check_path(args.ckptd);
	check_path(args.run);
	if (strlen(args.run) > JOB_FOLDER_RUN_MAX || args.run[strlen(args.run) - 1] == '/'
		|| args.drain < 0 || args.drain > 86400 || args.preflight < PREFLIGHT_MODE_OFF
		|| args.preflight > PREFLIGHT_MODE_ON)
		abort();
	snprintf(socket, sizeof socket, "%s/job-4294967295/ckptd/socket", args.run);
	if (strlen(socket) + 1 >= sizeof socket)
		abort();
}

/* As spank_args_scan says it, from the end. */
static enum spank_choice last_option(char *const *argv, int argc)
{
	int end = 1;
	while (end < argc && strcmp(argv[end], "--") != 0)
		end++;
	for (int i = end - 1; i > 0; i--) {
		if (strcmp(argv[i], "--muster") == 0)
			return CHOICE_ON;
		if (strcmp(argv[i], "--no-muster") == 0)
			return CHOICE_OFF;
	}
	return CHOICE_NONE;
}

static const char *no_env(const char *name, void *arg)
{
	return strcmp(name, arg) == 0 ? "(null)" : NULL;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char *text = malloc(size + 1), *argv[WORDS_MAX];
	int argc = 0;
	if (!text)
		return 0;
	memcpy(text, bytes, size);
	text[size] = '\0';
	for (char *word = text; word <= text + size && argc < WORDS_MAX; word += strlen(word) + 1)
		argv[argc++] = word;
	check_arguments(argc, argv);
	if (spank_args_scan(argv, argc) != last_option(argv, argc))
		abort();
	for (int i = 0; i < argc; i++) {
		enum spank_choice choice = spank_args_variable(argv[i]);
		if ((choice == CHOICE_NONE) != (argv[i][0] == '\0'))
			abort();
		spank_args_inherited(no_env, argv[i]);
	}
	free(text);
	return 0;
}
