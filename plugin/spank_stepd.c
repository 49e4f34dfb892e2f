/* SPDX-License-Identifier: Apache-2.0 */
/* In slurmstepd: gives each task its rank variables, and looks at how each one ends.
 *
 * Whatever fails is reported from task_init, which ends the task: from init and post_opt it would drain the node
 * (spank(8)). */
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
#include "common/run_as_user.h"
#include "plugin/preflight.h"
#include "plugin/job_folder.h"
#include "plugin/rank_env.h"
#include "plugin/spank_args.h"
#include "plugin/spank_contexts.h"
#include "plugin/spank_end.h"
#include "plugin/task_end.h"

#define SCRIPT_MAX (1 << 20) /* bytes of a job's script that is looked into */
#define HELPER_SECONDS 10.0  /* how long the end of a task may wait for muster-requeue */
#define HELPER_DEADLINE "9"
#define FIRST_NODE_SECONDS 10.0 /* how long the start of a step may wait for the controller's answer */
#define SETTLE_SECONDS "1"   /* for the note of the rank whose failure made Slurm kill this one */

static struct {
	struct spank_args args;
	struct err args_error;
	bool args_failed, wanted;
	char master[256]; /* the host of rank 0; "" where that couldn't be found */
	struct err master_error;
	struct preflight *preflight; /* NULL: not made */
	bool end_seen; /* a task of this node has ended otherwise than with 0 */
} stepd;

static uint32_t item(spank_t spank, enum spank_item name)
{
	uint32_t value = 0;
	return spank_get_item(spank, name, &value) == ESPANK_SUCCESS ? value : 0;
}

/* Of a step that srun started; the batch script, the extern and the interactive step have no ranks. */
static bool is_task_step(spank_t spank)
{
	uint32_t step = item(spank, S_JOB_STEPID);
	return step != SLURM_BATCH_SCRIPT && step != SLURM_EXTERN_CONT && step != SLURM_INTERACTIVE_STEP;
}

#define VARIABLE_MAX (1 << 17) /* bytes: Linux lets no program start with a longer one */

/* A variable of the task; NULL when it is unset. Each call has its own buffer among the last few: the list of the nodes of a
 * large step is long. */
static const char *task_env(const char *name, void *arg)
{
	static struct { char *text; size_t size; } held[16];
	static int next;
	char **text = &held[next].text;
	size_t *size = &held[next].size;
	next = (next + 1) % 16;
	for (;;) {
		spank_err_t rc = *size ? spank_getenv(arg, name, *text, (int)*size) : ESPANK_NOSPACE;
		if (rc != ESPANK_NOSPACE || *size >= VARIABLE_MAX)
			return rc == ESPANK_SUCCESS ? *text : NULL;
		char *larger = realloc(*text, *size ? *size * 4 : 512);
		if (!larger)
			return NULL;
		*text = larger;
		*size = *size ? *size * 4 : 512;
	}
}

/* The item for this is 0 in the steps of a restarted job (Slurm 22.05); the variable is not set in a first attempt. */
static uint32_t attempt_of(spank_t spank)
{
	const char *count = task_env("SLURM_RESTART_COUNT", spank);
	return count ? (uint32_t)strtoul(count, NULL, 10) : 0;
}

int spank_stepd_init(spank_t spank, int argc, char **argv)
{
	struct err err;
	bool good = spank_args_parse(argc, argv, &stepd.args, &stepd.args_error) == 0;
	if (spank_args_register(spank, &err) < 0 && good)
		stepd.args_error = err, good = false;
	stepd.args_failed = !good;
	return 0;
}

/* A clean environment for a helper: it needs Slurm's configuration and nothing of the job's. Not the job's SLURM_CONF either: it
 * would name the libraries that the helper loads, and no limit of the job's holds that one. */
static void helper_env(char *conf, size_t size, char **env)
{
	const char *path = getenv("SLURM_CONF");
	snprintf(conf, size, "SLURM_CONF=%s", path ? path : "");
	env[0] = "PATH=/usr/bin:/bin";
	env[1] = path ? conf : NULL;
	env[2] = NULL;
}

/* Runs a helper as the job's user. */
static int run_helper(spank_t spank, char **argv, double seconds, char *output, size_t size, struct err *err)
{
	char conf[4200], *env[3];
	int group_count = 0;
	gid_t *groups = NULL;
	helper_env(conf, sizeof conf, env);
	spank_get_item(spank, S_JOB_SUPPLEMENTARY_GIDS, &groups, &group_count);
	struct run_user user = { item(spank, S_JOB_UID), item(spank, S_JOB_GID), groups, (size_t)group_count };
	return run_as_user(&user, argv, env, seconds, output, size, err);
}

/* ---- where rank 0 is ---- */

/* Whether the list of the step's nodes doesn't begin with that of rank 0: the user gave an order, or the step has other
 * components, which Slurm counts separately. */
static bool is_out_of_order(spank_t spank)
{
	const char *distribution = task_env("SLURM_DISTRIBUTION", spank), *nodes = task_env("SLURM_STEP_NUM_NODES", spank);
	return (distribution && strncmp(distribution, "arbitrary", 9) == 0) ||
		(nodes && strtoul(nodes, NULL, 10) != item(spank, S_JOB_NNODES));
}

/* A process of its own asks the controller: from within slurmstepd the call may end that (Slurm 26.05). */
static int ask_first_node(spank_t spank, const char *leader, const char *nodes, char *out, size_t size, struct err *err)
{
	char job[16], step[16], answer[600];
	char *argv[] = { (char *)SPANK_ARGS_FIRST_NODE, (char *)leader, job, step, (char *)nodes, NULL };
	snprintf(job, sizeof job, "%u", item(spank, S_JOB_ID));
	snprintf(step, sizeof step, "%u", item(spank, S_JOB_STEPID));
	if (run_helper(spank, argv, FIRST_NODE_SECONDS, answer, sizeof answer, err) < 0)
		return -1;
	answer[strcspn(answer, "\n")] = '\0';
	if (strncmp(answer, "node ", 5) != 0 || strlen(answer + 5) >= size)
		return err_set(err, "%s", answer[0] ? answer : SPANK_ARGS_FIRST_NODE " said nothing");
	strcpy(out, answer + 5);
	return 0;
}

static int first_node(spank_t spank, char *out, size_t size, struct err *err)
{
	const char *nodes = task_env("SLURM_STEP_NODELIST", spank), *job = task_env("SLURM_JOB_ID", spank);
	if (!nodes || !job)
		return err_set(err, "ranks: couldn't find rank 0's node: SLURM_STEP_NODELIST or SLURM_JOB_ID is not set");
	if (is_out_of_order(spank))
		return ask_first_node(spank, job, nodes, out, size, err);
	if (hostlist_nth(nodes, 0, out, size) < 0)
		return err_set(err, "ranks: couldn't read the first host of SLURM_STEP_NODELIST=%.200s", nodes);
	return 0;
}

/* What Slurm's daemons use to reach a node, NodeAddr in slurm.conf, else its name. slurm_conf_get_address is no public
 * symbol, but mpi/pmix finds its peers by it, and the plugin only loads into the release that it was built for. What it
 * returns can't be freed from here: some bytes a step. */
static void address_of_node(const char *node, char *out, size_t size)
{
	char *(*address_of)(const char *) = (char *(*)(const char *))dlsym(RTLD_DEFAULT, "slurm_conf_get_address");
	const char *address = address_of ? address_of(node) : NULL;
	snprintf(out, size, "%s", address && address[0] ? address : node);
}

/* Still as root, before the first task of the node. A failure is reported by the tasks. */
static void find_master(spank_t spank)
{
	char node[256];
	if (first_node(spank, node, sizeof node, &stepd.master_error) == 0)
		address_of_node(node, stepd.master, sizeof stepd.master);
}

int spank_stepd_post_opt(spank_t spank)
{
	enum spank_choice told = spank_args_first(spank_args_option(), spank_args_variable(task_env("MUSTER", spank)));
	/* In the batch step, Slurm 22.05 has the option in this variable only. */
	enum spank_choice choice = spank_args_first(told, spank_args_inherited(task_env, spank));
	stepd.wanted = choice == CHOICE_NONE ? stepd.args.default_on : choice == CHOICE_ON;
	/* The script and its srun commands don't see sbatch's options, and with --export not its environment either. */
	if (choice != CHOICE_NONE && item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT)
		spank_setenv(spank, "MUSTER", choice == CHOICE_ON ? "1" : "0", 1);
	if (!stepd.wanted || !is_task_step(spank))
		return 0;
	find_master(spank);
	spank_end_begin(spank);
	return 0;
}

/* Before the node's first task starts, as the user. */
int spank_stepd_user_init(spank_t spank)
{
	if (stepd.wanted && is_task_step(spank))
		stepd.preflight = preflight_share((int)item(spank, S_JOB_LOCAL_TASK_COUNT));
	return 0;
}

static int set_task_env(const char *name, const char *value, void *arg)
{
	return (value ? spank_setenv(arg, name, value, 1) : spank_unsetenv(arg, name)) == ESPANK_SUCCESS ? 0 : -1;
}

/* Where the node's checkpoint service of this job listens. A task that was started from inside another job must not take
 * that one's. */
static void set_service(spank_t spank)
{
	char path[JOB_FOLDER_SOCKET_SIZE];
	struct stat st;
	const char *inherited = task_env("MUSTER_CKPTD", spank);
	size_t length = strlen(stepd.args.run);
	job_folder_socket(stepd.args.run, item(spank, S_JOB_ID), path);
	if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
		spank_setenv(spank, "MUSTER_CKPTD", path, 1);
	else if (inherited && strncmp(inherited, stepd.args.run, length) == 0 && inherited[length] == '/')
		spank_unsetenv(spank, "MUSTER_CKPTD");
}

static void say(void *arg, const char *line)
{
	slurm_spank_log("muster: %s", line);
}

/* What the user says counts; a word that is none does not. */
static enum preflight_mode preflight_mode(spank_t spank)
{
	const char *word = task_env("MUSTER_PREFLIGHT", spank);
	int mode = word ? preflight_mode_of(word) : -1;
	return mode < 0 ? stepd.args.preflight : (enum preflight_mode)mode;
}

/* This is the task's own process: its end is the task's, with a status that says so. An error that is returned would not stop the
 * task, since the plugin is optional, and without its rank it would take itself for a world of one. */
static _Noreturn void stop_task(const struct err *why)
{
	slurm_error("muster: %s", why->text);
	_exit(EXIT_USAGE);
}

/* Whether the command line of this task, or the script that it is, starts ranks without srun. It is the user who reads it. */
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
	return is_script && argc > 0 && io_read_file(AT_FDCWD, argv[0], SCRIPT_MAX, &text, &size, NULL) == 0 &&
		alone_names_launcher(text);
}

int spank_stepd_task_init(spank_t spank)
{
	struct err err;
	struct rank_env_place place = { (int)attempt_of(spank), stepd.master[0] ? stepd.master : NULL, stepd.master_error.text };
	if (stepd.wanted && item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT && starts_ranks(spank, true))
		job_folder_mark_step(stepd.args.run, item(spank, S_JOB_ID));
	if (!stepd.wanted || !is_task_step(spank))
		return 0;
	if (stepd.args_failed)
		stop_task(&stepd.args_error);
	if (rank_env_make(&place, task_env, set_task_env, spank, &err) < 0)
		stop_task(&err);
	set_service(spank);
	spank_end_task_init(spank);
	if (!preflight_task(stepd.preflight, preflight_mode(spank), starts_ranks(spank, false), task_env, say, spank))
		_exit(EXIT_USAGE);
	return 0;
}

/* Tells the user, through srun, what the helper had to say; it has a line only on the node that was first. */
static void relay(char *output, const char *why)
{
	char *rest = NULL, *line = strtok_r(output, "\n", &rest);
	if (line && why)
		slurm_spank_log("muster: %s", why);
	for (; line; line = strtok_r(NULL, "\n", &rest))
		slurm_spank_log("%s", line);
}

/* What srun's user is to hear of an end. */
enum telling {
	TELL_ALL,  /* which rank it was, and what becomes of the job */
	TELL_JOB,  /* srun names the first rank itself. It does so where the job ran when the rank failed: the helper then has a line. */
	TELL_NONE, /* it was a result: no failure, and the job does not stay or go for it */
};

static void ask_requeue(spank_t spank, enum task_end end, double when, const char *why, enum telling telling)
{
	char job[16], attempt[16], step[32], ended[40], final[400], place[300], output[1000];
	const char *node = task_env("SLURMD_NODENAME", spank);
	char *argv[12];
	int n = 0;
	struct err err;
	snprintf(job, sizeof job, "%u", item(spank, S_JOB_ID));
	snprintf(attempt, sizeof attempt, "%u", attempt_of(spank));
	snprintf(step, sizeof step, "--step=%u", item(spank, S_JOB_STEPID));
	snprintf(ended, sizeof ended, "--when=%.6f", when);
	snprintf(final, sizeof final, "--final=%s", why);
	snprintf(place, sizeof place, "--node=%s", node ? node : "");
	argv[n++] = (char *)stepd.args.requeue;
	argv[n++] = "--quiet";
	argv[n++] = "--deadline=" HELPER_DEADLINE;
	argv[n++] = step;
	argv[n++] = ended;
	if (end == TASK_FINAL)
		argv[n++] = final;
	if (end == TASK_FINAL && node)
		argv[n++] = place;
	if (end == TASK_KILLED)
		argv[n++] = "--settle=" SETTLE_SECONDS;
	argv[n++] = job;
	argv[n++] = attempt;
	argv[n] = NULL;
	int rc = run_helper(spank, argv, HELPER_SECONDS, output, sizeof output, &err);
	if (telling == TELL_NONE)
		return;
	if (rc < 0)
		slurm_spank_log("muster: %s: %s", why, err.text);
	if (rc < 0 || output[0])
		spank_end_running(spank);
	if (rc == 0)
		relay(output, telling == TELL_ALL ? why : NULL);
}

/* Of a script that has ended by itself: with several nodes or tasks and without any step, all that it started was started
 * once. A script that was cancelled may not have come to its srun. */
static void look_for_srun(spank_t spank)
{
	int status = 0;
	char given[60];
	const char *node = task_env("SLURMD_NODENAME", spank);
	if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS || !WIFEXITED(status) || WEXITSTATUS(status) > 128)
		return;
	if (preflight_mode(spank) == PREFLIGHT_MODE_OFF || !alone_job_is_larger(task_env, spank, given, sizeof given))
		return;
	if (job_folder_had_step(stepd.args.run, item(spank, S_JOB_ID)) == 0)
		slurm_spank_log("muster: warning: srun-missing: the job's script has ended without srun: what it started ran once, on %s "
			"alone, and the job has %s: " ALONE_REMEDY, node ? node : "its node", given);
}

int spank_stepd_task_exit(spank_t spank)
{
	int status = 0;
	double when = clock_wall();
	char end_text[100], why[300];
	const char *node;
	if (stepd.wanted && item(spank, S_JOB_STEPID) == SLURM_BATCH_SCRIPT)
		look_for_srun(spank);
	if (!stepd.wanted || !is_task_step(spank) || spank_get_item(spank, S_TASK_EXIT_STATUS, &status) != ESPANK_SUCCESS)
		return 0;
	enum task_end end = task_end_judge(status);
	if (end == TASK_FINISHED)
		return 0;
	/* A result other than 0 still has srun kill the other ranks, and a job must not come back for those. */
	bool result = end == TASK_FINAL && spank_end_is_result(spank);
	enum telling telling = result ? TELL_NONE : spank_end_tell(spank, status) ? TELL_JOB : TELL_ALL;
	if (stepd.end_seen || (result && item(spank, S_JOB_TOTAL_TASK_COUNT) == 1))
		return 0;
	stepd.end_seen = true;
	if (!stepd.args.requeue) {
		spank_end_running(spank);
		return 0;
	}
	node = task_env("SLURMD_NODENAME", spank);
	snprintf(why, sizeof why, "rank %d%s%s %s", spank_end_rank(spank), node ? " on " : "", node ? node : "",
		task_end_describe(status, end_text, sizeof end_text));
	ask_requeue(spank, end, when, why, telling);
	return 0;
}
