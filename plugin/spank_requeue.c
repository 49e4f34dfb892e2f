/* SPDX-License-Identifier: Apache-2.0 */
/* All requests go through muster-requeue, which runs as the user, so that the user's permissions
 * count. */
#include "plugin/spank_requeue.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "plugin/job_folder.h"
#include "plugin/left_stepd.h"
#include "plugin/spank_end.h"
#include "plugin/spank_task.h"
#include "plugin/task_end.h"
#include "plugin/wish.h"
#include "slurm/later.h"

#define HELPER_SECONDS 10.0 /* how long a task's end may wait for muster-requeue */
#define HELPER_DEADLINE "8"
#define SETTLE_SECONDS "1" /* for the note of the rank that failed and took this one along */
#define WAIT_SECONDS 25.0  /* the same when many runs may wait for the controller, for one run */
#define WAIT_DEADLINE "20"
#define PATH_SIZE 4096
#define ARGUMENTS 16
#define OUTPUT_SIZE 8192 /* of muster-requeue, whose last line is its answer */

#define LARGER_NAME "larger-step" /* in the job's folder: the last step with several tasks */

/* ---- steps that are not the training ---- */

/* What the node knows of the step that is most likely the training: one with several tasks. */
struct larger {
	bool runs, overlaps; /* overlaps: started with --overlap */
	uint32_t step, tasks;
};

static bool read_larger(spank_t spank, const struct spank_args *args, struct larger *larger)
{
	char text[60];
	int runs, overlaps;
	if (!job_folder_read(args->run, spank_task_item(spank, S_JOB_ID), LARGER_NAME, text,
			sizeof text)
		|| sscanf(text, "step %u tasks %u runs %d overlaps %d", &larger->step, &larger->tasks,
			   &runs, &overlaps)
			!= 4)
		return false;
	larger->runs = runs != 0;
	larger->overlaps = overlaps != 0;
	return true;
}

static void write_larger(spank_t spank, const struct spank_args *args, const struct larger *larger)
{
	char text[60];
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	snprintf(text, sizeof text, "step %u tasks %u runs %d overlaps %d\n", larger->step,
		larger->tasks, larger->runs, larger->overlaps);
	job_folder_need(args->run, job);
	job_folder_write(args->run, job, LARGER_NAME, text, NULL);
}

void spank_requeue_begin(spank_t spank, const struct spank_args *args)
{
	bool pty;
	struct larger own = { .runs = true,
		.step = spank_task_item(spank, S_JOB_STEPID),
		.tasks = spank_task_item(spank, S_JOB_TOTAL_TASK_COUNT) },
				  other;
	spank_task_options(spank, &own.overlaps, &pty);
	if (own.tasks < 2 || pty)
		return;
	/* If all steps overlap, the one with the most tasks is the training. */
	if (own.overlaps && read_larger(spank, args, &other)
		&& (!other.overlaps || other.tasks >= own.tasks))
		return;
	write_larger(spank, args, &own);
}

void spank_requeue_end(spank_t spank, const struct spank_args *args)
{
	struct larger larger;
	if (!read_larger(spank, args, &larger) || larger.step != spank_task_item(spank, S_JOB_STEPID))
		return;
	larger.runs = false;
	write_larger(spank, args, &larger);
}

enum weight {
	WEIGHT_FULL,  /* it may be the training */
	WEIGHT_AFTER, /* one task, after a larger step: it may come back, but no failure counts */
	WEIGHT_NONE,  /* it runs beside the training */
};

static enum weight weigh(spank_t spank, const struct spank_args *args)
{
	struct larger larger;
	bool overlap, pty, known = read_larger(spank, args, &larger);
	bool single = spank_task_item(spank, S_JOB_TOTAL_TASK_COUNT) < 2;
	spank_task_options(spank, &overlap, &pty);
	if (pty || (overlap && single))
		return WEIGHT_NONE;
	if (!known || (!single && !overlap) || larger.step == spank_task_item(spank, S_JOB_STEPID))
		return WEIGHT_FULL;
	return overlap || larger.runs ? WEIGHT_NONE : WEIGHT_AFTER;
}

/* ---- asking ---- */

/* The arguments for muster-requeue, and storage for those that are made. */
struct request {
	char job[16], attempt[16], step[32], ended[40], final[400], place[300], breaker[30],
		progress[PATH_SIZE + 20];
	char *argv[ARGUMENTS];
	int argc;
};

static void add(struct request *request, const char *argument)
{
	request->argv[request->argc++] = (char *)argument;
	request->argv[request->argc] = NULL;
}

/* The file that changes with progress; a relative path is relative to the step's working folder.
 * False if none is set. */
static bool progress_path(spank_t spank, char *out, size_t size)
{
	const char *path = spank_task_env("MUSTER_PROGRESS", spank),
			   *folder = spank_task_env("PWD", spank);
	if (!path || !path[0] || (path[0] != '/' && !folder))
		return false;
	int n = path[0] == '/' ? snprintf(out, size, "--progress=%s", path)
						   : snprintf(out, size, "--progress=%s/%s", folder, path);
	return n >= 0 && (size_t)n < size;
}

static void add_breaker(struct request *request, spank_t spank, int minutes)
{
	snprintf(request->breaker, sizeof request->breaker, "--breaker=%d", minutes);
	add(request, request->breaker);
	if (spank_end_progressed(spank))
		add(request, "--progressed");
	if (progress_path(spank, request->progress, sizeof request->progress))
		add(request, request->progress);
}

/* Adds what depends on how the task ended. */
static void add_end(struct request *request, spank_t spank, const struct spank_args *args,
	int status)
{
	enum task_end end = task_end_judge(status);
	if (weigh(spank, args) == WEIGHT_AFTER && (end == TASK_FINAL || task_end_is_counted(status)))
		add(request, "--taken");
	else if (end == TASK_FINAL)
		add(request, request->final);
	else if (task_end_is_counted(status) && args->breaker >= 0)
		add_breaker(request, spank, args->breaker);
}

/* Adds what names the job, which comes last. */
static void add_job(struct request *request, spank_t spank)
{
	snprintf(request->job, sizeof request->job, "%u", spank_task_item(spank, S_JOB_ID));
	snprintf(request->attempt, sizeof request->attempt, "%u", spank_task_attempt(spank));
	add(request, request->job);
	add(request, request->attempt);
}

static void make_request(struct request *request, spank_t spank, const struct spank_args *args,
	int status, double when, const char *why)
{
	const char *node = spank_task_env("SLURMD_NODENAME", spank);
	request->argc = 0;
	snprintf(request->step, sizeof request->step, "--step=%u",
		spank_task_item(spank, S_JOB_STEPID));
	snprintf(request->ended, sizeof request->ended, "--when=%.6f", when);
	snprintf(request->final, sizeof request->final, "--final=%s", why);
	snprintf(request->place, sizeof request->place, "--node=%s", node ? node : "");
	add(request, request->step);
	add(request, request->ended);
	if (node)
		add(request, request->place);
	if (node && spank_end_leaving(spank))
		add(request, "--leaving");
	add_end(request, spank, args, status);
	bool lost = task_end_blame(status) == TASK_BLAME_LOST;
	if (lost)
		add(request, "--lost");
	if (lost || task_end_judge(status) == TASK_KILLED)
		add(request, "--settle=" SETTLE_SECONDS);
	add_job(request, spank);
}

static const char away[] = LATER_AWAY "\n", ending[] = LATER_ENDED "\n", over[] = LATER_OVER "\n",
				  held[] = LATER_HELD "\n", done[] = LATER_DONE "\n";

/* The last line of what muster-requeue has printed, which is cut off; NULL if it was killed before
 * it had answered. */
static const char *cut_answer(char *output)
{
	static const char *const answers[] = { away, ending, over, held, done };
	size_t length = strlen(output);
	for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
		size_t size = strlen(answers[i]);
		if (length < size || strcmp(output + length - size, answers[i]) != 0)
			continue;
		output[length - size] = '\0';
		return answers[i];
	}
	return NULL;
}

/* Runs muster-requeue, and once more if it is killed: Slurm may kill it with the step while it
 * starts. *later says that it must be asked again (away, ending), that Slurm has ended the attempt
 * without this node (over), that Slurm holds the job since the next attempt could not start (held),
 * or else done. Returns -1, with `away`, if it has not answered. */
static int ask(spank_t spank, const struct spank_args *args, char *const *request,
	const char *deadline, double seconds, char *output, size_t size, const char **later,
	struct err *err)
{
	char *argv[ARGUMENTS + 5];
	int n = 0;
	struct deadline limit = deadline_in(seconds);
	argv[n++] = (char *)args->requeue;
	argv[n++] = "--quiet";
	argv[n++] = "--later";
	argv[n++] = (char *)deadline;
	for (; *request; request++)
		argv[n++] = *request;
	argv[n] = NULL;
	*later = NULL;
	for (int tries = 0; !*later && tries < 2; tries++) {
		if (spank_task_run(spank, argv, deadline_left(limit), output, size, err) < 0)
			break;
		*later = cut_answer(output);
		if (!*later)
			err_set(err, "requeue: %s was killed before it had answered", argv[0]);
	}
	if (*later)
		return 0;
	*later = away;
	return -1;
}

/* Passes the lines of muster-requeue to the user through srun; there are some only on the node that
 * was first. */
static void relay(char *output, const char *why)
{
	char *rest = NULL, *line = strtok_r(output, "\n", &rest);
	if (line && why)
		slurm_spank_log("muster: %s", why);
	for (; line; line = strtok_r(NULL, "\n", &rest))
		slurm_spank_log("%s", line);
}

/* `failed`: why muster-requeue printed nothing; NULL: it has run. */
static void tell(spank_t spank, const char *failed, char *output, const char *why,
	enum spank_requeue_telling telling)
{
	if (failed)
		slurm_spank_log("muster: %s: %s", why, failed);
	if (failed || output[0])
		spank_end_running(spank);
	if (!failed)
		relay(output, telling == SPANK_REQUEUE_TELL_ALL ? why : NULL);
}

/* Asks until the controller answers, however long it is away: the job runs meanwhile. */
static int ask_until_answered(spank_t spank, const struct spank_args *args, char *const *request,
	char *output, size_t size, const char **later, struct err *err)
{
	do
		if (ask(spank, args, request, "--deadline=" WAIT_DEADLINE, WAIT_SECONDS, output, size,
				later, err)
			< 0)
			/* For instance because the user stopped it, which must not hold up the node. */
			return -1;
	while (*later == away);
	return 0;
}

/* Slurm has ended this attempt while the node was lost, and knows of nothing that is left of it. */
static void stop_left(spank_t spank)
{
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	if (left_script_stop(job, getpid()) > 0)
		slurm_info(
			"muster: job %u: what is left here of attempt %u is stopped: Slurm took this node "
			"for lost and has gone on without it",
			job, spank_task_attempt(spank));
}

/* The epilog has the job released when nothing of this attempt is left. */
static void wish_for_release(spank_t spank, const struct spank_args *args)
{
	struct request request = { 0 };
	const char *node = spank_task_env("SLURMD_NODENAME", spank);
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	wish_drop(args->run, job, WISH_IN_VAIN);
	if (!node || !wish_is_batch_host(args->run, job))
		return;
	snprintf(request.place, sizeof request.place, "--node=%s", node);
	add(&request, "--held");
	add(&request, request.place);
	add_job(&request, spank);
	wish_write(args->run, job, WISH_IN_VAIN, request.argv);
}

/* The requeue could not be asked for in the time that a task's end may take. If the controller is
 * away, this end waits on: srun would learn of it and have the controller kill the other ranks. If
 * srun ends anyway, the end of the script asks. */
static void ask_on(spank_t spank, const struct spank_args *args, char *const *request,
	const char *later)
{
	char output[OUTPUT_SIZE];
	struct err err;
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	const char *kind = spank_task_env("ENVIRONMENT", spank);
	bool here = wish_is_batch_host(args->run, job);
	if (here)
		wish_write(args->run, job, WISH_IN_VAIN, request);
	if (here && later == ending)
		slurm_spank_log("muster: job %u has ended: it is put back in the queue when nothing of it "
						"is left on its nodes",
			job);
	/* Only a job of sbatch can come back: don't keep a user waiting at a terminal. */
	if (later != away || !(here || (kind && strcmp(kind, "BATCH") == 0)))
		return;
	if (ask_until_answered(spank, args, request, output, sizeof output, &later, &err) < 0) {
		slurm_spank_log("muster: %s", err.text);
		return;
	}
	relay(output, NULL);
	if (later == over)
		stop_left(spank);
	if (later == held)
		wish_for_release(spank, args);
	else if (later == done || later == over)
		wish_drop(args->run, job, WISH_IN_VAIN);
}

void spank_requeue_ask(spank_t spank, const struct spank_args *args, int status, double when,
	enum spank_requeue_telling telling)
{
	char end_text[100], why[300], output[OUTPUT_SIZE];
	const char *node = spank_task_env("SLURMD_NODENAME", spank), *later;
	struct request request;
	struct err err;
	if (weigh(spank, args) == WEIGHT_NONE) {
		spank_end_running(spank);
		return;
	}
	snprintf(why, sizeof why, "rank %d%s%s %s", spank_end_rank(spank), node ? " on " : "",
		node ? node : "", task_end_describe(status, end_text, sizeof end_text));
	make_request(&request, spank, args, status, when, why);
	/* srun may know of this end and be gone before the answer: then the script's end asks. */
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	if (wish_is_batch_host(args->run, job))
		wish_write(args->run, job, WISH_ASKED, request.argv);
	int rc = ask(spank, args, request.argv, "--deadline=" HELPER_DEADLINE, HELPER_SECONDS, output,
		sizeof output, &later, &err);
	if (telling != SPANK_REQUEUE_TELL_NONE)
		tell(spank, rc < 0 ? err.text : NULL, output, why, telling);
	if (later == over)
		stop_left(spank);
	else if (later == held)
		wish_for_release(spank, args);
	else if (later != done)
		ask_on(spank, args, request.argv, later);
	wish_drop(args->run, job, WISH_ASKED);
}

/* ---- the batch step ---- */

void spank_requeue_batch_begin(spank_t spank, const struct spank_args *args)
{
	wish_mark_batch_host(args->run, spank_task_item(spank, S_JOB_ID));
}

bool spank_requeue_lost_script(spank_t spank)
{
	int status = 0, argc = 0;
	char **argv = NULL;
	return spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS && WIFEXITED(status)
		&& WEXITSTATUS(status) == ENOENT
		&& spank_get_item(spank, S_JOB_ARGV, &argc, &argv) == ESPANK_SUCCESS && argc > 0
		&& fnmatch("/*/slurm_script", argv[0], 0) == 0 && access(argv[0], F_OK) < 0
		&& errno == ENOENT;
}

/* The request of a script that never began; the breaker bounds how often. */
static void make_first_request(struct request *request, spank_t spank,
	const struct spank_args *args)
{
	request->argc = 0;
	if (args->breaker >= 0)
		add_breaker(request, spank, args->breaker);
	add_job(request, spank);
}

void spank_requeue_batch_end(spank_t spank, const struct spank_args *args)
{
	struct wish wish;
	struct request request;
	char output[OUTPUT_SIZE];
	char *const *argv = wish.argv;
	const char *later, *why = NULL;
	struct err err;
	uint32_t job = spank_task_item(spank, S_JOB_ID);
	if (!args->requeue)
		return;
	if (spank_requeue_lost_script(spank)) {
		make_first_request(&request, spank, args);
		argv = request.argv;
		why = "slurmd has removed the job's script before it began";
	} else if (!wish_read(args->run, job, WISH_IN_VAIN, &wish)
		&& !wish_read(args->run, job, WISH_ASKED, &wish))
		return;
	if (ask_until_answered(spank, args, argv, output, sizeof output, &later, &err) < 0) {
		slurm_spank_log("muster: %s", err.text);
		return;
	}
	relay(output, why);
	if (later == done || later == over)
		wish_drop(args->run, job, WISH_IN_VAIN);
}
