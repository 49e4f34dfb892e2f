/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmstepd: gives each task its rank variables, and handles its end.
 *
 * All failures are reported from task_init, where they end the task: from init and post_opt they
 * would drain the node (spank(8)). */
#include <dlfcn.h>
#include <fcntl.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/alone.h"
#include "common/auto.h"
#include "common/clock.h"
#include "common/hostlist.h"
#include "common/io.h"
#include "plugin/job_folder.h"
#include "plugin/preflight.h"
#include "plugin/rank_env.h"
#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"
#include "plugin/spank_end.h"
#include "plugin/spank_requeue.h"
#include "plugin/spank_task.h"
#include "plugin/task_end.h"

#define SCRIPT_MAX (1 << 20)    /* bytes of a job's script that are read */
#define FIRST_NODE_SECONDS 10.0 /* for the controller's answer, when a step starts */
#define SETTLE_SECONDS "30"     /* half of what ranks of other nodes wait for those of this one */
#define SETTLE_MOST 40.0

static struct {
	struct spank_args args;
	struct err args_error;
	bool args_failed, wanted;
	char master[256]; /* rank 0's host; "" if it couldn't be found */
	struct err master_error;
	char service[JOB_FOLDER_SOCKET_SIZE]; /* of this job's checkpoint service; "": none */
	struct preflight *preflight;          /* NULL: not made */
	uint32_t tasks_ended;
	bool end_seen; /* a task of this node has ended with a status other than 0 */
} stepd;

int spank_stepd_init(spank_t spank, int argc, char **argv)
{
	struct err err;
	bool good = spank_args_parse(argc, argv, &stepd.args, &stepd.args_error) == 0;
	if (spank_args_register(spank, &err) < 0 && good)
		stepd.args_error = err, good = false;
	stepd.args_failed = !good;
	return 0;
}

/* ---- where rank 0 is ---- */

/* Whether the step's node list may not begin with rank 0's node: the user gave an order, or the
 * step has other components, which Slurm counts separately. */
static bool is_out_of_order(spank_t spank)
{
	const char *distribution = spank_task_env("SLURM_DISTRIBUTION", spank),
			   *nodes = spank_task_env("SLURM_STEP_NUM_NODES", spank);
	return (distribution && strncmp(distribution, "arbitrary", 9) == 0)
		|| (nodes && strtoul(nodes, NULL, 10) != spank_task_item(spank, S_JOB_NNODES));
}

/* A separate process asks the controller: within slurmstepd the call may end slurmstepd (Slurm
 * 26.05). */
static int ask_first_node(spank_t spank, const char *leader, const char *nodes, char *out,
	size_t size, struct err *err)
{
	char job[16], step[16], answer[600];
	char *argv[] = { (char *)SPANK_ARGS_FIRST_NODE, (char *)leader, job, step, (char *)nodes,
		NULL };
	snprintf(job, sizeof job, "%u", spank_task_item(spank, S_JOB_ID));
	snprintf(step, sizeof step, "%u", spank_task_item(spank, S_JOB_STEPID));
	if (spank_task_run(spank, argv, FIRST_NODE_SECONDS, answer, sizeof answer, err) < 0)
		return -1;
	answer[strcspn(answer, "\n")] = '\0';
	if (strncmp(answer, "node ", 5) != 0 || strlen(answer + 5) >= size)
		return err_set(err, "%s", answer[0] ? answer : SPANK_ARGS_FIRST_NODE " said nothing");
	strcpy(out, answer + 5);
	return 0;
}

static int first_node(spank_t spank, char *out, size_t size, struct err *err)
{
	const char *nodes = spank_task_env("SLURM_STEP_NODELIST", spank),
			   *job = spank_task_env("SLURM_JOB_ID", spank);
	if (!nodes || !job)
		return err_set(err,
			"ranks: couldn't find rank 0's node: SLURM_STEP_NODELIST or SLURM_JOB_ID is not set");
	if (is_out_of_order(spank))
		return ask_first_node(spank, job, nodes, out, size, err);
	if (hostlist_nth(nodes, 0, out, size) < 0)
		return err_set(err, "ranks: couldn't read the first host of SLURM_STEP_NODELIST=%.200s",
			nodes);
	return 0;
}

/* The address that Slurm's daemons use for a node: NodeAddr in slurm.conf, else its name.
 * slurm_conf_get_address is not a public symbol, but mpi/pmix finds its peers with it, and the
 * plugin only loads into the release that it was built for. Its result can't be freed from here: a
 * few bytes a step are lost. */
static void address_of_node(const char *node, char *out, size_t size)
{
	char *(*address_of)(const char *) =
		(char *(*)(const char *))dlsym(RTLD_DEFAULT, "slurm_conf_get_address");
	const char *address = address_of ? address_of(node) : NULL;
	snprintf(out, size, "%s", address && address[0] ? address : node);
}

/* Still as root, before the node's first task. The tasks report a failure. */
static void find_master(spank_t spank)
{
	char node[256];
	if (first_node(spank, node, sizeof node, &stepd.master_error) == 0)
		address_of_node(node, stepd.master, sizeof stepd.master);
}

/* In task_init the folder may be invisible: another plugin, or Slurm itself, may already have put
 * the task into a container. */
static void find_service(spank_t spank)
{
	char path[JOB_FOLDER_SOCKET_SIZE];
	struct stat st;
	job_folder_socket(stepd.args.run, spank_task_item(spank, S_JOB_ID), path);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		strcpy(stepd.service, path);
}

/* What a former step of this allocation has handed over is to be durable before this one reads the
 * newest checkpoint. */
static void settle_service(spank_t spank)
{
	const char *restart = spank_task_env(IDENT_RESTART, spank);
	char *argv[] = { (char *)stepd.args.ckptd, "--settle", stepd.service, "--timeout",
		SETTLE_SECONDS, NULL };
	char output[500];
	struct err err;
	if (!restart || strtol(restart, NULL, 10) <= 0 || !stepd.args.ckptd || !stepd.service[0])
		return;
	if (spank_task_run(spank, argv, SETTLE_MOST, output, sizeof output, &err) < 0)
		slurm_spank_log("muster: %s", err.text);
	else if (output[0])
		slurm_spank_log("%.*s", (int)strcspn(output, "\n"), output);
}

int spank_stepd_post_opt(spank_t spank)
{
	enum spank_choice told =
		spank_args_first(spank_args_option(), spank_args_variable(spank_task_env("MUSTER", spank)));
	/* In the batch step, Slurm 22.05 passes the option only in this variable. */
	enum spank_choice choice = spank_args_first(told, spank_args_inherited(spank_task_env, spank));
	stepd.wanted = choice == CHOICE_NONE ? stepd.args.default_on : choice == CHOICE_ON;
	/* The script and its srun commands don't see sbatch's options, nor, with --export, its
	 * environment. */
	if (choice != CHOICE_NONE && spank_task_item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT)
		spank_setenv(spank, "MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
	if (stepd.wanted && spank_task_item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT)
		spank_requeue_batch_begin(spank, &stepd.args);
	if (!stepd.wanted || !spank_task_is_step(spank))
		return 0;
	find_master(spank);
	find_service(spank);
	settle_service(spank);
	spank_end_begin(spank);
	spank_requeue_begin(spank, &stepd.args);
	return 0;
}

/* As the user, before the node's first task starts. */
int spank_stepd_user_init(spank_t spank)
{
	if (!stepd.wanted || !spank_task_is_step(spank))
		return 0;
	spank_end_user_init(spank);
	stepd.preflight = preflight_share((int)spank_task_item(spank, S_JOB_LOCAL_TASK_COUNT));
	return 0;
}

static int set_task_env(const char *name, const char *value, void *arg)
{
	return (value ? spank_setenv(arg, name, value, 1) : spank_unsetenv(arg, name)) == ESPANK_SUCCESS
		? 0
		: -1;
}

/* A task that was started from inside another job must not use that job's service. */
static void set_service(spank_t spank)
{
	const char *inherited = spank_task_env("MUSTER_CKPTD", spank);
	size_t length = strlen(stepd.args.run);
	if (stepd.service[0])
		spank_setenv(spank, "MUSTER_CKPTD", stepd.service, 1);
	else if (inherited && strncmp(inherited, stepd.args.run, length) == 0
		&& inherited[length] == '/')
		spank_unsetenv(spank, "MUSTER_CKPTD");
}

static void say(void *arg, const char *line)
{
	slurm_spank_log("muster: %s", line);
}

/* The user's MUSTER_PREFLIGHT counts, unless it is malformed. */
static enum preflight_mode preflight_mode(spank_t spank)
{
	const char *word = spank_task_env("MUSTER_PREFLIGHT", spank);
	int mode = word ? preflight_mode_of(word) : -1;
	return mode < 0 ? stepd.args.preflight : (enum preflight_mode)mode;
}

/* This is the task's own process, so exiting ends the task, with a status that says so. Returning
 * an error would not stop the task, since the plugin is optional, and without its rank the task
 * would take itself for a world of one. */
static _Noreturn void stop_task(const struct err *why)
{
	slurm_error("muster: %s", why->text);
	_exit(EXIT_USAGE);
}

/* Whether this task's command line, or the script that it runs, starts ranks without srun. The
 * script is read as the user. */
static bool starts_ranks(spank_t spank, bool is_script)
{
	char **argv = NULL;
	int argc = 0;
	AUTO_FREE char *text = NULL;
	size_t size;
	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS)
		return false;
	for (int i = 0; i < argc; i++)
		if (alone_names_launcher(argv[i]))
			return true;
	return is_script && argc > 0
		&& io_read_file(AT_FDCWD, argv[0], SCRIPT_MAX, &text, &size, NULL) == 0
		&& alone_names_launcher(text);
}

int spank_stepd_task_init(spank_t spank)
{
	struct err err;
	struct rank_env_place place = { (int)spank_task_attempt(spank),
		stepd.master[0] ? stepd.master : NULL, stepd.master_error.text };
	if (stepd.wanted && spank_task_item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT
		&& starts_ranks(spank, true))
		job_folder_mark_step(stepd.args.run, spank_task_item(spank, S_JOB_ID));
	if (!stepd.wanted || !spank_task_is_step(spank))
		return 0;
	if (stepd.args_failed)
		stop_task(&stepd.args_error);
	if (rank_env_make(&place, spank_task_env, set_task_env, spank, &err) < 0)
		stop_task(&err);
	set_service(spank);
	spank_end_task_init(spank);
	if (!preflight_task(stepd.preflight, preflight_mode(spank), starts_ranks(spank, false),
			spank_task_env, say, spank))
		_exit(EXIT_USAGE);
	return 0;
}

/* For a script that has ended by itself: in a job of several nodes or tasks without any step,
 * everything that it started ran once. A script that was cancelled may not have reached its
 * srun. */
static void look_for_srun(spank_t spank)
{
	int status = 0;
	char given[60];
	const char *node = spank_task_env("SLURMD_NODENAME", spank);
	if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || !WIFEXITED(status)
		|| WEXITSTATUS(status) > 128)
		return;
	if (preflight_mode(spank) == PREFLIGHT_MODE_OFF
		|| !alone_job_is_larger(spank_task_env, spank, given, sizeof given))
		return;
	if (job_folder_had_step(stepd.args.run, spank_task_item(spank, S_JOB_ID)) == 0)
		slurm_spank_log("muster: warning: srun-missing: the job's script has ended without srun: "
						"what it started ran once, on %s alone, and the job has %s: " ALONE_REMEDY,
			node ? node : "its node", given);
}

/* Whether the muster-run that has started the step deals with the end: it begins the step anew. A
 * task that asks to come back has been told that its node goes. */
static bool is_left_to_run(spank_t spank, int status)
{
	return spank_end_restarts_left(spank) > 0 && task_end_judge(status) != TASK_FINAL
		&& task_end_is_counted(status);
}

int spank_stepd_task_exit(spank_t spank)
{
	int status = 0;
	double when = clock_wall();
	if (stepd.wanted && spank_task_item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT) {
		if (!spank_requeue_lost_script(spank))
			look_for_srun(spank);
		spank_requeue_batch_end(spank, &stepd.args);
	}
	if (!stepd.wanted || !spank_task_is_step(spank)
		|| spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
		return 0;
	if (++stepd.tasks_ended == spank_task_item(spank, S_JOB_LOCAL_TASK_COUNT))
		spank_requeue_end(spank, &stepd.args);
	enum task_end end = task_end_judge(status);
	if (end == TASK_FINISHED)
		return 0;
	/* Even after a result other than 0 srun kills the other ranks, and the job must not come back
	 * because of those. */
	bool result = end == TASK_FINAL && spank_end_is_result(spank);
	enum spank_requeue_telling telling = SPANK_REQUEUE_TELL_NONE;
	if (!result)
		telling = spank_end_tell(spank, status) ? SPANK_REQUEUE_TELL_JOB : SPANK_REQUEUE_TELL_ALL;
	if (stepd.end_seen || (result && spank_task_item(spank, S_JOB_TOTAL_TASK_COUNT) == 1))
		return 0;
	stepd.end_seen = true;
	if (stepd.args.requeue && !is_left_to_run(spank, status))
		spank_requeue_ask(spank, &stepd.args, status, when, telling);
	else
		spank_end_running(spank);
	return 0;
}
