/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's settings and options, each as a table. */
#include "plugin/spank_args.h"

#include <stdlib.h>
#include <string.h>

#include "common/number.h"
#include "plugin/job_folder.h"
#include "slurm/hooks.h"

#define DRAIN_MAX 86400
#define BREAKER_MAX 10080 /* minutes: a week */

struct key {
	const char *name;
	int (*set)(struct spank_args *args, const char *value); /* -1 for a bad value */
	const char *values;
};

static int set_default(struct spank_args *args, const char *value)
{
	if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
		return -1;
	args->default_on = strcmp(value, "on") == 0;
	return 0;
}

static int set_program(const char **program, const char *value)
{
	if (strcmp(value, "off") != 0 && value[0] != '/')
		return -1;
	*program = value[0] == '/' ? value : NULL;
	return 0;
}

static int set_requeue(struct spank_args *args, const char *value)
{
	return set_program(&args->requeue, value);
}

static int set_ckptd(struct spank_args *args, const char *value)
{
	return set_program(&args->ckptd, value);
}

static int set_run(struct spank_args *args, const char *value)
{
	size_t length = strlen(value);
	if (value[0] != '/' || value[length - 1] == '/' || length > JOB_FOLDER_RUN_MAX)
		return -1;
	args->run = value;
	return 0;
}

static int set_drain(struct spank_args *args, const char *value)
{
	int64_t seconds;
	if (!number_whole(value, 0, DRAIN_MAX, &seconds))
		return -1;
	args->drain = (int)seconds;
	return 0;
}

static int set_breaker(struct spank_args *args, const char *value)
{
	int64_t minutes = -1;
	if (strcmp(value, "off") != 0 && !number_whole(value, 1, BREAKER_MAX, &minutes))
		return -1;
	args->breaker = (int)minutes;
	return 0;
}

static int set_preflight(struct spank_args *args, const char *value)
{
	int mode = preflight_mode_of(value);
	if (mode < 0)
		return -1;
	args->preflight = (enum preflight_mode)mode;
	return 0;
}

static const struct key keys[] = {
	{ "default", set_default, "on or off" },
	{ "requeue", set_requeue, "the absolute path of muster-requeue, or off" },
	{ "ckptd", set_ckptd, "the absolute path of muster-ckptd, or off" },
	{ "run", set_run, "an absolute path of at most 60 characters, without a slash at its end" },
	{ "drain", set_drain, "seconds, from 0 to 86400" },
	{ "breaker", set_breaker, "minutes, from 1 to 10080, or off" },
	{ "preflight", set_preflight, "on, warn or off" },
};
#define KEY_COUNT (sizeof keys / sizeof keys[0])

static int parse_one(const char *text, struct spank_args *args, struct err *err)
{
	const char *equals = strchr(text, '=');
	for (size_t i = 0; equals && i < KEY_COUNT; i++) {
		size_t length = strlen(keys[i].name);
		if ((size_t)(equals - text) != length || strncmp(text, keys[i].name, length) != 0)
			continue;
		if (keys[i].set(args, equals + 1) == 0)
			return 0;
		return err_set(err, "plugstack.conf: couldn't use %s: %s= takes %s", text, keys[i].name,
			keys[i].values);
	}
	return err_set(err,
		"plugstack.conf: couldn't use %s: the keys are default=, requeue=, ckptd=, run=, drain=, "
		"breaker= and preflight=",
		text);
}

int spank_args_parse(int argc, char **argv, struct spank_args *args, struct err *err)
{
	int rc = 0;
	*args = (struct spank_args) { .requeue = SPANK_ARGS_REQUEUE,
		.ckptd = SPANK_ARGS_CKPTD,
		.run = JOB_FOLDER_RUN,
		.drain = HOOKS_DRAIN_DEFAULT,
		.breaker = 10,
		.preflight = PREFLIGHT_MODE_ON };
	for (int i = 0; i < argc; i++)
		if (parse_one(argv[i], args, rc == 0 ? err : NULL) < 0)
			rc = -1;
	return rc;
}

static enum spank_choice chosen;

static int on_option(int value, const char *text, int remote)
{
	chosen = value;
	return ESPANK_SUCCESS;
}

static struct spank_option options[] = {
	{ "muster", NULL,
		"[muster] set the ranks' variables, use PMIx, bring the job back after an interruption", 0,
		CHOICE_ON, on_option },
	{ "no-muster", NULL, "[muster] leave this job alone", 0, CHOICE_OFF, on_option },
};

int spank_args_register(spank_t spank, struct err *err)
{
	for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
		if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS)
			return err_set(err,
				"options: couldn't add --%s to Slurm's: another plugin may have one of that name",
				options[i].name);
	return 0;
}

enum spank_choice spank_args_option(void)
{
	return chosen;
}

enum spank_choice spank_args_scan(char *const *argv, int argc)
{
	enum spank_choice choice = CHOICE_NONE;
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
			if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, options[o].name) == 0)
				choice = options[o].val;
	return choice;
}

/* srun reads the value of this option as a number, if there is one. -1: another option. */
static int kill_value(const char *word)
{
	static const char name[] = "--kill-on-bad-exit";
	size_t length = strcspn(word, "=");
	if (word[0] == '-' && word[1] == 'K')
		return word[2] ? atoi(word + 2) != 0 : 1;
	/* getopt_long accepts a prefix that no other option has. */
	if (length < strlen("--kill") || length > strlen(name) || strncmp(word, name, length) != 0)
		return -1;
	return word[length] ? atoi(word + length + 1) != 0 : 1;
}

int spank_args_kill_on_bad_exit(char *const *argv, int argc, const char *variable)
{
	int kills = variable ? atoi(variable) != 0 : -1;
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		int value = kill_value(argv[i]);
		kills = value < 0 ? kills : value;
	}
	return kills;
}

int spank_args_place(char *const *argv, int argc, const char *option, size_t least)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		size_t length = strcspn(argv[i], "=");
		if (length >= least && length <= strlen(option) && strncmp(argv[i], option, length) == 0)
			return argc - i;
	}
	return 0;
}

#define INHERITED_PREFIX "SLURM_SPANK__SLURM_SPANK_OPTION_muster_"

/* Slurm replaces characters that a variable's name can't have by underscores. */
static const char *inherited_name(enum spank_choice choice)
{
	return choice == CHOICE_ON ? INHERITED_PREFIX "muster" : INHERITED_PREFIX "no_muster";
}

enum spank_choice spank_args_inherited(ident_env *env, void *arg)
{
	if (env(inherited_name(CHOICE_OFF), arg))
		return CHOICE_OFF;
	return env(inherited_name(CHOICE_ON), arg) ? CHOICE_ON : CHOICE_NONE;
}

/* Slurm prefixes what the submitting command passes on with SPANK_: it becomes a prolog's
 * environment, and a user has chosen it. */
enum spank_choice spank_args_job(spank_t spank)
{
	enum spank_choice told = spank_args_variable(getenv("SPANK_MUSTER"));
	for (size_t o = 0; told == CHOICE_NONE && o < sizeof options / sizeof options[0]; o++)
		if (spank_option_getopt(spank, &options[o], NULL) == ESPANK_SUCCESS)
			told = options[o].val;
	return told;
}

void spank_args_tell_job(spank_t spank, enum spank_choice choice)
{
	if (choice != CHOICE_NONE)
		spank_job_control_setenv(spank, "MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
}

void spank_args_hand_on(enum spank_choice choice)
{
	unsetenv(inherited_name(CHOICE_ON));
	unsetenv(inherited_name(CHOICE_OFF));
	if (choice != CHOICE_NONE)
		setenv(inherited_name(choice), "(null)", 1); /* as Slurm writes an option without a value */
}

enum spank_choice spank_args_variable(const char *value)
{
	if (!value || !value[0])
		return CHOICE_NONE;
	return strcmp(value, "0") == 0 || strcmp(value, "off") == 0 || strcmp(value, "no") == 0
		? CHOICE_OFF
		: CHOICE_ON;
}

enum spank_choice spank_args_first(enum spank_choice first, enum spank_choice second)
{
	return first != CHOICE_NONE ? first : second;
}
