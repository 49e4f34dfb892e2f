/* SPDX-License-Identifier: Apache-2.0 */
/* In srun: sets the defaults that data-parallel training needs and the user has not set, and at the
 * end names the rank that failed first. */
#include "config.h"

#include <limits.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/number.h"
#include "plugin/end_channel.h"
#include "plugin/job_folder.h"
#include "plugin/skip_step.h"
#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"
#include "plugin/spank_task.h"
#include "slurm/slurm_compat.h"

/* Messages have already arrived, possibly among those of strangers. Half of it is as long as a node
 * tries to send one. */
#define COLLECT_SECONDS 3.0
#define SKIP_SECONDS 20.0 /* for a step that takes some hundredths of a second */

static struct {
	struct spank_args args;
	enum spank_choice early;
	bool defaults_set, interactive;
	bool skipped;     /* a step was made before this one, so that this has another ID */
	bool is_part;     /* the step is meant to be a part of its job */
	int overlap, pty; /* places of these options; 0: not given */
	int kills;        /* ends the step after a task's bad exit; -1: site default */
	struct end_channel ends;
} srun = { .ends.fd = -1 };

/* srun reads these variables after slurm_spank_init and before its command line, so the user's
 * options win. */
static const char *const defaults[][2] = {
	{ "SLURM_KILL_BAD_EXIT",
		"1" }, /* or the survivors of a dead rank wait in a collective for ever */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
	{ "SLURM_GRES_FLAGS",
		"allow-task-sharing" }, /* or --gpus-per-task=1 hides the GPUs of peers from NCCL */
#endif
};

/* The command line of this process. *argv points into *text; the caller frees both. Returns the
 * number of words, 0 on error. */
static int read_command_line(char **text, char ***argv)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/self/cmdline", "re");
	size_t size = 0;
	int argc = 0;
	*text = NULL;
	*argv = NULL;
	ssize_t length = file ? getdelim(text, &size, EOF, file) : -1;
	if (length <= 0)
		return 0;
	for (ssize_t i = 0; i < length; i++)
		argc += (*text)[i] == '\0';
	*argv = calloc((size_t)argc + 1, sizeof **argv);
	if (!*argv)
		return 0;
	char *word = *text;
	for (int i = 0; i < argc; i++, word += strlen(word) + 1)
		(*argv)[i] = word;
	return argc;
}

/* Whether an option is for one of several steps that share a job, or selects some of its nodes. */
static bool makes_part(const char *word)
{
	static const char *const words[] = { "--exact", "--exclusive", "--overlap", "--nodelist",
		"--relative", "-w", "-r" };
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strncmp(word, words[i], strlen(words[i])) == 0)
			return true;
	return false;
}

/* Slurm has not processed the options yet when the defaults must be set. *interactive: this srun
 * starts the user's shell of salloc on a node (LaunchParameters=use_interactive_step). *mpi: the
 * user has chosen an MPI type. */
static enum spank_choice scan_command_line(bool *interactive, bool *mpi)
{
	AUTO_FREE char *text = NULL;
	AUTO_FREE char **argv = NULL;
	int argc = read_command_line(&text, &argv);
	*interactive = argc > 1 && strcmp(argv[1], "--interactive") == 0;
	*mpi = false;
	for (int i = 1; i < argc; i++) {
		*mpi |= strncmp(argv[i], "--mpi", 5) == 0;
		srun.is_part |= makes_part(argv[i]);
	}
	srun.kills = spank_args_kill_on_bad_exit(argv, argc, NULL);
	srun.overlap = spank_args_place(argv, argc, "--overlap", strlen("--overl"));
	srun.pty = spank_args_place(argv, argc, "--pty", strlen("--pt"));
	return spank_args_scan(argv, argc);
}

static const char *own_env(const char *name, void *arg)
{
	return getenv(name);
}

/* The nearest choice counts: this command line, then MUSTER, then sbatch's option. */
static enum spank_choice early_choice(bool *interactive, bool *mpi)
{
	enum spank_choice outer = spank_args_first(spank_args_variable(getenv("MUSTER")),
		spank_args_inherited(own_env, NULL));
	return spank_args_first(scan_command_line(interactive, mpi), outer);
}

static bool is_wanted(enum spank_choice choice)
{
	return choice == CHOICE_NONE ? srun.args.default_on : choice == CHOICE_ON;
}

static void say(void *arg, const char *line)
{
	slurm_spank_log("muster: %s", line);
}

static void say_nothing(void *arg, const char *line) {}

/* If Slurm has neither PMIx nor PMI2 the step starts without them: not every program needs them. */
static void choose_mpi(void)
{
	const char *type =
		preflight_mpi(srun.args.preflight == PREFLIGHT_MODE_OFF ? say_nothing : say, NULL);
	if (type)
		setenv("SLURM_MPI_TYPE", type, 0);
}

static void set_defaults(bool mpi)
{
	if (!mpi && !getenv("SLURM_MPI_TYPE"))
		choose_mpi();
	for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
		setenv(defaults[i][0], defaults[i][1], 0);
}

static bool read_number(const char *name, int64_t *value)
{
	const char *text = getenv(name);
	return text && number_whole(text, 1, 1 << 24, value);
}

/* For the tasks, which see only the step's number of tasks: passes on the number from the
 * environment of the job's script or shell. Newer releases of Slurm leave SLURM_NTASKS unset if
 * only --ntasks-per-node was given. 0: the step is smaller on purpose. */
static void tell_job_tasks(void)
{
	char text[24];
	int64_t tasks, nodes;
	if (getenv("SLURM_STEP_NUM_TASKS"))
		return; /* inside a step */
	unsetenv("MUSTER_JOB_TASKS");
	if (!getenv("SLURM_JOB_ID"))
		return;
	if (srun.is_part) {
		setenv("MUSTER_JOB_TASKS", "0", 1);
		return;
	}
	if (!read_number("SLURM_NTASKS", &tasks)) {
		if (!read_number("SLURM_NTASKS_PER_NODE", &tasks)
			|| !read_number("SLURM_JOB_NUM_NODES", &nodes))
			return;
		tasks *= nodes;
	}
	snprintf(text, sizeof text, "%lld", (long long)tasks);
	setenv("MUSTER_JOB_TASKS", text, 1);
}

/* For slurmstepd, which knows which words belong to the program. */
static void tell_aside(void)
{
	char text[40];
	snprintf(text, sizeof text, "%d %d", srun.overlap, srun.pty);
	unsetenv(SPANK_TASK_ASIDE);
	if (srun.overlap || srun.pty)
		setenv(SPANK_TASK_ASIDE, text, 1);
}

/* For the end of the job's script, which may have forgotten srun. Steps of all kinds count, but not
 * srun --mpi=list. Returns whether this is not known to be another than the first. */
static bool mark_step(void)
{
	const char *text = getenv("SLURM_JOB_ID");
	int64_t job;
	return !text || !number_whole(text, 1, UINT32_MAX, &job)
		|| !job_folder_mark_step(srun.args.run, (uint32_t)job);
}

/* Before this step is made. The one that it makes is made with --no-muster. */
static void skip_step(void)
{
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(26, 5, 0)
	char program[PATH_MAX];
	struct err err;
	ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
	if (srun.skipped || length <= 0 || !skip_step_is_due(own_env, NULL))
		return;
	srun.skipped = true; /* Slurm calls this once a component */
	program[length] = '\0';
	if (skip_step_make(program, environ, SKIP_SECONDS, &err) < 0)
		slurm_spank_log(
			"muster: warning: this step may have the ID that the attempt before used: %s",
			err.text);
#endif
}

int spank_srun_init(spank_t spank, int argc, char **argv)
{
	struct err err;
	if (spank_args_parse(argc, argv, &srun.args, &err) < 0)
		slurm_error("muster: %s", err.text);
	if (spank_args_register(spank, &err) < 0)
		slurm_error("muster: %s", err.text);
	bool mpi;
	enum spank_choice choice = srun.early = early_choice(&srun.interactive, &mpi);
	spank_args_hand_on(choice);
	srun.defaults_set = is_wanted(choice);
	/* The shell would pass them on to each srun started from it, even one with --no-muster. */
	if (srun.defaults_set && !srun.interactive)
		set_defaults(mpi);
	if (srun.defaults_set && !srun.interactive)
		tell_job_tasks();
	tell_aside();
	if (srun.kills < 0)
		srun.kills = spank_args_kill_on_bad_exit(NULL, 0, getenv("SLURM_KILL_BAD_EXIT"));
	return 0;
}

/* The ports on which the site lets srun listen; NULL: any. */
static const uint16_t *port_range(void)
{
	return slurm_compat_conf() ? slurm_compat_conf()->srun_port_range : NULL;
}

/* Whether ranks go on after another one has failed. */
static bool others_go_on(void)
{
	return srun.kills < 0 ? slurm_compat_conf() && !slurm_compat_conf()->kill_on_bad_exit
						  : !srun.kills;
}

/* Listens from before the step is made, since a step of several components copies the environment
 * at this moment. */
static void await_ends(enum spank_choice choice)
{
	char value[END_CHANNEL_VALUE_SIZE];
	struct err err;
	if (srun.ends.fd >= 0)
		return; /* Slurm calls this once a component */
	unsetenv(END_CHANNEL_VARIABLE);
	if (srun.interactive || !is_wanted(choice))
		return;
	if (end_channel_open(&srun.ends, port_range(), value, &err) < 0)
		slurm_spank_log("muster: %s; the first failure will not be named", err.text);
	else
		setenv(END_CHANNEL_VARIABLE, value, 1);
}

int spank_srun_post_opt(spank_t spank)
{
	enum spank_choice choice = spank_args_option();
	if (choice == CHOICE_ON && !srun.defaults_set)
		slurm_spank_log("muster: couldn't set srun's defaults: write --muster in full, before the "
						"program's name");
	enum spank_choice nearest = spank_args_first(choice, srun.early);
	spank_args_tell_job(spank, nearest);
	await_ends(nearest);
	if (!srun.interactive && mark_step() && is_wanted(nearest))
		skip_step();
	/* Applies the choice to the tasks, and to srun commands that they start. */
	if (choice != CHOICE_NONE)
		setenv("MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
	return 0;
}

int spank_srun_exit(void)
{
	struct first_end state = { .others_go_on = others_go_on() };
	char line[600];
	end_channel_collect(&srun.ends, COLLECT_SECONDS, &state);
	if (first_end_line(&state, line, sizeof line))
		slurm_spank_log("muster: %s", line);
	return 0;
}
