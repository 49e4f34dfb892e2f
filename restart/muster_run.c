/* SPDX-License-Identifier: Apache-2.0 */
/* muster-run: in a job's script, runs srun, and begins its step again when a rank or a node dies. A
 * plugin can't run srun again, and a requeue waits for Slurm's queue. */
#include "config.h"

#include <argp.h>
#include <err.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <syslog.h>

#include "common/auto.h"
#include "common/descriptors.h"
#include "common/ident.h"
#include "common/number.h"
#include "launch/requeue_ask.h"
#include "restart/command.h"
#include "restart/reach.h"
#include "restart/step.h"

#define RESTARTS 10
#define RESTARTS_MOST 100000
#define SILENCE 10.0
#define CONTROLLER_SECONDS 300.0 /* for slurmctld to come back, or its backup */

struct options {
	long restarts, spares, least; /* least: 0 for more than half */
	double silence;
	char *const *command;
};

static const struct argp_option option_table[] = {
	{ "restarts", 'r', "N", 0, "how often the step may be begun again (default 10)", 0 },
	{ "spares", 's', "N", 0, "nodes of the job that wait until another one dies (default 0)", 0 },
	{ "least", 'l', "N", 0,
		"go back into the queue with fewer nodes than that (default: more than half of those of "
		"the first step)",
		0 },
	{ "silence", 't', "SECONDS", 0,
		"after that a node that answers nothing is taken for dead (default 10)", 0 },
	{ 0 },
};

static long whole(struct argp_state *state, const char *name, const char *text)
{
	int64_t value = 0;
	if (!number_whole(text, 0, RESTARTS_MOST, &value))
		argp_error(state, "--%s %s: not a number from 0 to %d", name, text, RESTARTS_MOST);
	return value;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'r': options->restarts = whole(state, "restarts", arg); return 0;
	case 's': options->spares = whole(state, "spares", arg); return 0;
	case 'l': options->least = whole(state, "least", arg); return 0;
	case 't':
		if (!number_real(arg, 0.1, 1e6, &options->silence))
			argp_error(state, "--silence %s: not a number of seconds from 0.1 on", arg);
		return 0;
	case ARGP_KEY_ARGS: options->command = state->argv + state->next; return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse_option,
	.args_doc = "-- srun [OPTION…] PROGRAM [ARGUMENT…]",
	.doc = "In a job's script: runs srun, and when a rank or a node dies begins the step again on "
		   "the nodes that are left, within the same allocation.\vExit status: that of the last "
		   "srun; 69 where the step can't be begun again, and the job goes back into the queue; 2 "
		   "usage.",
};

/* ---- the job ---- */

struct run {
	struct options options;
	struct ident job; /* its ID and attempt */
	struct nodes nodes;
	int size, tasks_each; /* of the first step, in nodes */
	struct reach_site site;
};

static const char *job_env(const char *name)
{
	const char *value = getenv(name);
	return value ? value : "";
}

static int read_number(const char *name, const char *text, int64_t least, int64_t most,
	int64_t *value, struct err *err)
{
	if (number_whole(text, least, most, value))
		return 0;
	return err_fail(err, EXIT_USAGE, "couldn't read %s=%.100s", name, text);
}

static int read_tasks(struct run *run, struct err *err)
{
	const char *each = job_env("SLURM_NTASKS_PER_NODE"), *coded = job_env("SLURM_TASKS_PER_NODE");
	run->tasks_each = nodes_tasks_each(each[0] ? each : coded);
	if (run->tasks_each > 0)
		return 0;
	return err_fail(err, EXIT_USAGE,
		"the nodes of the job don't have the same number of tasks (SLURM_TASKS_PER_NODE=%.100s): "
		"give sbatch --ntasks-per-node",
		coded);
}

static int read_job(struct run *run, struct err *err)
{
	const char *job = job_env("SLURM_JOB_ID"), *attempt = job_env("SLURM_RESTART_COUNT");
	int64_t number, count = 0;
	if (!job[0])
		return err_fail(err, EXIT_USAGE,
			"SLURM_JOB_ID is not set: muster-run is for the script of a job (sbatch)");
	if (getenv("SLURM_STEP_NUM_TASKS"))
		return err_fail(err, EXIT_USAGE,
			"it is for the script of a job, and starts srun itself: leave out the srun before it");
	if (getenv("SLURM_HET_SIZE"))
		return err_fail(err, EXIT_USAGE, "it can't run a heterogeneous job: use srun");
	if (read_number("SLURM_JOB_ID", job, 1, UINT32_MAX, &number, err) < 0
		|| (attempt[0] && read_number("SLURM_RESTART_COUNT", attempt, 0, INT_MAX, &count, err) < 0))
		return -1;
	run->job = (struct ident) { .job = (uint32_t)number, .attempt = (int)count };
	return read_tasks(run, err);
}

static int read_nodes(struct run *run, struct err *err)
{
	struct options *options = &run->options;
	if (nodes_read(&run->nodes, job_env("SLURM_JOB_NODELIST"), err) < 0)
		return -1;
	if (options->spares >= run->nodes.count)
		return err_fail(err, EXIT_USAGE,
			"--spares %ld: the job has %d node%s: give sbatch more --nodes, or fewer spares",
			options->spares, run->nodes.count, run->nodes.count == 1 ? "" : "s");
	run->size = run->nodes.count - (int)options->spares;
	if (options->least > run->size)
		return err_fail(err, EXIT_USAGE,
			"--least %ld: the first step has %d node%s: give at most that", options->least,
			run->size, run->size == 1 ? "" : "s");
	if (options->least == 0)
		options->least = run->size / 2 + 1;
	return 0;
}

/* ---- which nodes are left ---- */

static void leave_out(struct run *run, struct node *node, const char *why)
{
	if (!node || node->out)
		return;
	node->out = true;
	warnx("%s is left out of this job's steps: %s", node->name, why);
	syslog(LOG_WARNING, "job %u leaves out node %s: %s", run->job.job, node->name, why);
}

/* Asks each node that has told nothing, and each spare. */
static int leave_out_gone(struct run *run, struct err *err)
{
	char why[100];
	snprintf(why, sizeof why, "it has said nothing for %g s", run->options.silence);
	for (int i = 0; i < run->nodes.count; i++)
		if (run->nodes.all[i].lost)
			leave_out(run, &run->nodes.all[i], why);
	AUTO_FREE char *unsure = nodes_list(&run->nodes, NODES_UNSURE);
	if (!unsure)
		return err_set(err, "out of memory");
	if (unsure[0]
		&& reach_nodes(&run->nodes, unsure, &run->site, deadline_in(CONTROLLER_SECONDS), err) < 0)
		return -1;
	for (int i = 0; i < run->nodes.count; i++)
		if (run->nodes.all[i].unreachable)
			leave_out(run, &run->nodes.all[i],
				"its slurmd does not answer, or Slurm calls it down");
	return 0;
}

/* ---- the steps ---- */

static void set_number(const char *name, long value)
{
	char text[24];
	snprintf(text, sizeof text, "%ld", value);
	setenv(name, text, 1);
}

/* One step on the nodes that are left. */
static int run_step(struct run *run, int signals, long restart, struct step *step, struct err *err)
{
	int count = nodes_choose(&run->nodes, run->size);
	AUTO_FREE char *list = nodes_list(&run->nodes, NODES_USED), *text = NULL,
				   *out = nodes_list(&run->nodes, NODES_OUT);
	if (!list || !out)
		return err_set(err, "out of memory");
	const struct command_step plan = { list, count, count * run->tasks_each, restart > 0 };
	AUTO_FREE char **argv = command_make(run->options.command, &plan, &text);
	if (!argv)
		return err_set(err, "out of memory");
	set_number(IDENT_RESTART, restart);
	set_number(IDENT_RESTARTS_LEFT, run->options.restarts - restart);
	setenv(IDENT_LEFT_OUT, out, 1);
	*step = (struct step) { .nodes = &run->nodes,
		.silence = run->options.silence,
		.signals = signals,
		.job = run->job.job };
	if (step_start(step, argv, run->site.srun_ports[0] ? run->site.srun_ports : NULL, err) < 0)
		return -1;
	return step_wait(step, err);
}

static int give_up(const struct run *run, const char *why)
{
	warnx("%s: job %u asks to go back into the queue", why, run->job.job);
	requeue_ask(&run->job, EXIT_REQUEUE);
	return EXIT_LOST;
}

/* After a step that may be begun again. Returns an exit status, or -1 to begin it. */
static int prepare(struct run *run, const struct step *step, long restart)
{
	struct err err;
	char why[300];
	step_describe(step, why, sizeof why);
	if (leave_out_gone(run, &err) < 0)
		return give_up(run, err.text);
	int left = nodes_left(&run->nodes);
	if (left < run->options.least) {
		snprintf(why, sizeof why, "%d node%s left, and at least %ld are needed", left,
			left == 1 ? " is" : "s are", run->options.least);
		return give_up(run, why);
	}
	if (!reach_job_goes_on(run->job.job, run->job.attempt))
		return give_up(run, "Slurm is taking the job's nodes away");
	int size = left < run->size ? left : run->size;
	warnx("%s: beginning the step again on %d node%s, restart %ld of %ld", why, size,
		size == 1 ? "" : "s", restart + 1, run->options.restarts);
	return -1;
}

static int run_all(struct run *run, int signals)
{
	struct err err;
	struct step step;
	for (long restart = 0;; restart++) {
		if (run_step(run, signals, restart, &step, &err) < 0) {
			warnx("%s", err.text);
			return err.status;
		}
		/* When none is left, the plugin has asked for the requeue, or the script does. */
		if (step_judge(&step) == STEP_OVER || restart == run->options.restarts)
			return step.status;
		int status = prepare(run, &step, restart);
		if (status >= 0)
			return status;
	}
}

/* What Slurm sends to a script is for the ranks, as is what ends muster-run in a terminal. */
static int take_signals(void)
{
	static const int taken[] = { SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
		sigaddset(&set, taken[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
	static char *const none[] = { NULL };
	struct run run = { .options = { .restarts = RESTARTS, .silence = SILENCE, .command = none } };
	struct err err;
	descriptors_raise();
	setlinebuf(stderr); /* the ranks write to the same log */
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &run.options);
	if (command_check(run.options.command, &err) < 0 || read_job(&run, &err) < 0
		|| read_nodes(&run, &err) < 0) {
		warnx("%s", err.text);
		return err.status;
	}
	int signals = take_signals();
	if (signals < 0)
		errx(EXIT_FAULT, "couldn't take signals: %m");
	reach_read_site(&run.site);
	int status = run_all(&run, signals);
	nodes_free(&run.nodes);
	return status;
}
