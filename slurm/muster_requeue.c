/* SPDX-License-Identifier: Apache-2.0 */
/* muster-requeue: puts a job back in the queue. The plugin runs it as the job's user; batch scripts
 * call it too. */
#include "config.h"

#include <argp.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/err.h"
#include "common/number.h"
#include "slurm/breaker.h"
#include "slurm/later.h"
#include "slurm/leave_out.h"
#include "slurm/requeue.h"

#define RETRY_SECONDS 1.0
#define DEFAULT_DEADLINE 300
#define BREAKER_MOST 100000 /* minutes */
#define NOTE_SECONDS 0.1    /* at most, from reading a job to writing the note about a rank */
#define NOTE_CALLS 3        /* calls of the controller between a rank's end and its note */

struct options {
	long job, status; /* -1: not given */
	struct requeue_end end;
	struct breaker breaker;
	double deadline, settle;
	const char *final, *node;
	bool quiet, running, runs, times, taken, later, leaving, deserted, held;
	int arguments;
};

enum {
	KEY_STATUS = 256,
	KEY_RUNNING,
	KEY_RUNS,
	KEY_TIMES,
	KEY_STEP,
	KEY_FINAL,
	KEY_NODE,
	KEY_TAKEN,
	KEY_WHEN,
	KEY_SETTLE,
	KEY_LOST,
	KEY_BREAKER,
	KEY_PROGRESS,
	KEY_PROGRESSED,
	KEY_ASKED,
	KEY_LATER,
	KEY_LEAVING,
	KEY_DESERTED,
	KEY_HELD,
	KEY_DEADLINE
};

static const struct argp_option option_table[] = {
	{ "status", KEY_STATUS, "N", 0,
		"for the end of a batch script: if N is 75, 69 or at least 128, put this job back "
		"(SLURM_JOB_ID, SLURM_RESTART_COUNT); then exit with N",
		0 },
	{ "running", KEY_RUNNING, NULL, 0,
		"change nothing: exit with 0 if that attempt runs or completes, with 1 if not", 0 },
	{ "deserted", KEY_DESERTED, NULL, 0,
		"with --running: put the job back if Slurm goes on with it without the node of its script "
		"(sbatch --no-kill)",
		0 },
	{ "runs", KEY_RUNS, NULL, 0,
		"change nothing: print yes if any attempt of the job runs or completes, else no", 0 },
	{ "times", KEY_TIMES, NULL, 0,
		"change nothing: print when the job came into the queue, when it began, and when its time "
		"is "
		"over, in seconds since the epoch",
		0 },
	{ "step", KEY_STEP, "STEP", 0, "do nothing if this step has ended for good", 0 },
	{ "final", KEY_FINAL, "WHY", 0,
		"note in the job's comment that the step has ended for good, and don't put it back, unless "
		"Slurm is taking its nodes away",
		0 },
	{ "node", KEY_NODE, "NAME", 0,
		"the node of the rank that ended: for --final and --taken, it counts as taken away while "
		"it is being drained",
		0 },
	{ "taken", KEY_TAKEN, NULL, 0, "put it back only if Slurm is taking its nodes away", 0 },
	{ "when", KEY_WHEN, "SECONDS", 0,
		"when the rank ended, since the epoch: only an end before that, or within 0.1 s of it, "
		"counts as that of the step (default: any)",
		0 },
	{ "lost", KEY_LOST, NULL, 0,
		"with --when: the rank has lost a peer, whose end counts up to 1 s after its own", 0 },
	{ "settle", KEY_SETTLE, "SECONDS", 0,
		"wait before deciding, and longer where the controller is slow (default 0)", 0 },
	{ "breaker", KEY_BREAKER, "MINUTES", 0,
		"the attempt failed by itself: don't put the job back after the third attempt in a row "
		"that ran no longer than this and made no progress",
		0 },
	{ "progress", KEY_PROGRESS, "PATH", 0,
		"with --breaker: a file or folder that changes if the attempt makes progress", 0 },
	{ "progressed", KEY_PROGRESSED, NULL, 0, "with --breaker: the attempt made progress", 0 },
	{ "asked", KEY_ASKED, NULL, 0,
		"an earlier request was in vain: put the job back even if it has failed since", 0 },
	{ "later", KEY_LATER, NULL, 0,
		"print as the last line \"" LATER_AWAY "\" where the controller was not reached, and "
		"\"" LATER_ENDED
		"\" where the job can be put back when nothing of it is left on its nodes, and don't wait "
		"for that; \"" LATER_OVER
		"\" where a later attempt has taken this one's place, \"" LATER_HELD
		"\" where Slurm holds the job since that one could not start, and else \"" LATER_DONE "\"",
		0 },
	{ "leaving", KEY_LEAVING, NULL, 0,
		"with --node: a cloud is about to take that node away, so the next attempt is not to start "
		"there",
		0 },
	{ "held", KEY_HELD, NULL, 0,
		"with --node, the node of its script: release the job if Slurm holds it since that node "
		"still ran this attempt when it was to start the next one",
		0 },
	{ "deadline", KEY_DEADLINE, "SECONDS", 0, "give up on a controller that is away (default 300)",
		0 },
	{ "quiet", 'q', NULL, 0, "print nothing if there was nothing to do", 0 },
	{ 0 },
};

static long number(struct argp_state *state, const char *name, const char *text, long max)
{
	int64_t value = 0;
	if (!number_whole(text, 0, max, &value))
		argp_error(state, "%s %s: not a number from 0 to %ld", name, text, max);
	return value;
}

static error_t parse_argument(struct options *options, char *arg, struct argp_state *state)
{
	if (options->arguments == 0)
		options->job = number(state, "JOB", arg, UINT32_MAX);
	else if (options->arguments == 1)
		options->end.attempt = (int)number(state, "ATTEMPT", arg, INT_MAX);
	else
		argp_error(state, "%s: too many arguments", arg);
	options->arguments++;
	return 0;
}

/* The flag that an option without a value sets; NULL for other options. */
static bool *flag_of(struct options *options, int key)
{
	switch (key) {
	case KEY_RUNNING: return &options->running;
	case KEY_RUNS: return &options->runs;
	case KEY_TIMES: return &options->times;
	case KEY_TAKEN: return &options->taken;
	case KEY_PROGRESSED: return &options->breaker.progressed;
	case KEY_ASKED: return &options->end.asked;
	case KEY_LOST: return &options->end.lost;
	case KEY_LATER: return &options->later;
	case KEY_LEAVING: return &options->leaving;
	case KEY_DESERTED: return &options->deserted;
	case KEY_HELD: return &options->held;
	case 'q': return &options->quiet;
	default: return NULL;
	}
}

static bool only_looks(const struct options *options)
{
	return options->running || options->runs || options->times;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	bool *flag = flag_of(options, key);
	if (flag) {
		*flag = true;
		return 0;
	}
	switch (key) {
	case KEY_STATUS: options->status = number(state, "--status", arg, 255); return 0;
	case KEY_STEP: options->end.step = number(state, "--step", arg, UINT32_MAX); return 0;
	case KEY_FINAL: options->final = arg; return 0;
	case KEY_NODE: options->node = arg; return 0;
	case KEY_WHEN:
		if (!number_real(arg, 0, 1e12, &options->end.when))
			argp_error(state, "--when %s: not a number of seconds", arg);
		return 0;
	case KEY_SETTLE: options->settle = (double)number(state, "--settle", arg, 60); return 0;
	case KEY_BREAKER:
		options->breaker.seconds = 60.0 * (double)number(state, "--breaker", arg, BREAKER_MOST);
		return 0;
	case KEY_PROGRESS: options->breaker.progress = arg; return 0;
	case KEY_DEADLINE:
		options->deadline = (double)number(state, "--deadline", arg, 86400);
		return 0;
	case ARGP_KEY_ARG: return parse_argument(options, arg, state);
	case ARGP_KEY_END:
		if (options->status >= 0 ? options->arguments != 0 : options->arguments != 2)
			argp_error(state, "give JOB and ATTEMPT, or --status N alone");
		if ((options->leaving || options->held) && !options->node)
			argp_error(state, "--leaving and --held need --node");
		if (options->final && options->end.step < 0)
			argp_error(state, "--final needs --step");
		if (options->deserted && !options->running)
			argp_error(state, "--deserted needs --running");
		if (only_looks(options) && (options->status >= 0 || options->end.step >= 0))
			argp_error(state, "--running, --runs and --times go with JOB and ATTEMPT alone");
		return 0;
	default: return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_table,
	.parser = parse_option,
	.args_doc = "JOB ATTEMPT",
	.doc = "Puts a batch job back in Slurm's queue if it still is at restart number ATTEMPT.\vExit "
		   "status: 0 done, or there was nothing to do; 1 the job can't be put back, or with "
		   "--running: does not run; 2 usage; 69 the controller was not reached before the "
		   "deadline; with --status N: N.",
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *format, ...)
{
	char line[1200];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fprintf(stderr, "muster-requeue: %s\n", line);
}

static const char *later; /* the last line; NULL without --later */

/* libslurm waits for an unreachable controller as long as it likes, so the deadline ends the
 * process. */
static void on_deadline(int signal_number)
{
	static const char line[] =
		"muster-requeue: couldn't reach the controller before the deadline\n" LATER_AWAY "\n";
	ssize_t ignored = write(STDERR_FILENO, line, sizeof line - (later ? 1 : sizeof LATER_AWAY + 1));
	(void)ignored;
	_exit(EXIT_LOST);
}

/* Leaves a note for ranks on other nodes that this step has ended for good. Notes written at the
 * same moment overwrite each other; the last one stays. Returns 0 if the note that stayed is
 * another rank's of this step, 1 if it is ours or another step's or can't be read, -1 on error. */
static int note(const struct requeue_job *job, const struct options *options, const char *why,
	struct err *err)
{
	struct requeue_job now;
	struct requeue_end end = options->end;
	if (isinf(end.when))
		end.when = clock_wall();
	AUTO_FREE char *comment = requeue_note(job->comment, &end, why);
	if (!comment)
		return err_set(err, "requeue: out of memory");
	if (requeue_set_comment(job, comment, err) < 0)
		return -1;
	deadline_sleep(deadline_in(1), NOTE_SECONDS);
	end.when = INFINITY;
	if (requeue_load(job->id, &now, NULL) < 0)
		return 1;
	bool ours = strcmp(now.comment, comment) == 0 || !requeue_noted(now.comment, &end);
	requeue_clear(&now);
	return ours;
}

static int end_for_good(const struct requeue_job *job, const struct options *options,
	struct err *err)
{
	bool first = job->attempt == options->end.attempt && job->state == REQUEUE_RUNNING
		&& !requeue_noted(job->comment, &options->end);
	int ours = first ? note(job, options, options->final, err) : 0;
	if (ours < 0)
		return -1;
	/* Don't say that the job won't come back: a rank that was killed earlier may bring it back. */
	if (ours || !options->quiet)
		say("%s, which does not put job %u back in the queue: the next attempt would fail in the "
			"same way",
			options->final, job->id);
	return EXIT_OK;
}

/* The job should come back and can't. The first rank that wants it back says so, once. */
static int refuse(const struct requeue_job *job, const struct options *options, const char *reason)
{
	if (options->end.step < 0 || note(job, options, reason, NULL) != 0)
		say("job %u can't be put back: %s", job->id, reason);
	return EXIT_FAULT;
}

/* If Slurm caused the failure, the line says so. */
static void say_back(const struct requeue_job *job, const struct options *options)
{
	char why[600] = "";
	if (options->final)
		snprintf(why, sizeof why, "%s while %s: ", options->final, requeue_notice(job));
	say("%sjob %u is put back in the queue after attempt %d", why, job->id, options->end.attempt);
}

/* The breaker's verdict, said once. */
static int give_up(const struct requeue_job *job, const struct options *options)
{
	char why[300];
	snprintf(why, sizeof why,
		"the last %d attempts of job %u failed by themselves within %g minutes each and showed no "
		"progress",
		REQUEUE_VAIN_MOST, job->id, options->breaker.seconds / 60);
	if (options->end.step < 0 || note(job, options, why, NULL) != 0)
		say("%s: it does not come back; look for their errors above, fix them, and start it again",
			why);
	return EXIT_OK;
}

static int put_back(struct requeue_job *job, const struct options *options,
	enum requeue_action action, struct err *err)
{
	char reason[300];
	int broken =
		requeue_notice(job) ? 0 : breaker_count(&options->breaker, job, options->end.attempt, err);
	if (broken < 0 && err->status == EXIT_LOST)
		return -1;
	if (broken < 0)
		say("%s; nothing bounds how often it comes back", err->text);
	if (requeue_decide(job, &options->end, reason, sizeof reason) != action)
		return EXIT_OK; /* another node has answered meanwhile */
	if (broken > 0)
		return give_up(job, options);
	if (requeue_submit(job, action, err) < 0)
		return -1;
	say_back(job, options);
	return EXIT_OK;
}

/* With --later the caller can't wait here: it is the end of a task, and the job waits for that.
 * Others try again. */
static int wait_for_nodes(const struct requeue_job *job, const struct options *options,
	struct err *err)
{
	if (options->later) {
		later = LATER_ENDED;
		return EXIT_OK;
	}
	return err_fail(err, EXIT_LOST,
		"requeue: couldn't requeue job %u: it has ended, and is not yet gone from all its nodes",
		job->id);
}

/* Once nothing of this attempt is left: Slurm changes no job that completes. Nothing of the next
 * attempt has run. */
static int release(struct requeue_job *job, const struct options *options, struct err *err)
{
	if (!job->held || job->attempt != options->end.attempt + 1)
		return EXIT_OK;
	if (job->completing)
		return wait_for_nodes(job, options, err);
	if (requeue_look_at_node(job, options->node, err) < 0
		|| (job->refused && requeue_release(job, err) < 0))
		return -1;
	if (job->refused)
		say("job %u is released: %s still ran its attempt %d when Slurm started it again", job->id,
			options->node, options->end.attempt);
	return EXIT_OK;
}

static int act_on(struct requeue_job *job, const struct options *options, struct err *err)
{
	char reason[300];
	if (options->held)
		return release(job, options, err);
	bool taken = options->final || options->taken;
	if (taken && options->node && requeue_look_at_node(job, options->node, err) < 0)
		return -1;
	if (breaker_tell(&options->breaker, job, options->end.attempt, err) < 0
		&& err->status == EXIT_LOST)
		return -1;
	enum requeue_action action = requeue_decide(job, &options->end, reason, sizeof reason);
	bool back = action == REQUEUE_SUBMIT || action == REQUEUE_REVIVE || action == REQUEUE_LATER;
	if (taken && !(back && requeue_notice(job)))
		return options->final ? end_for_good(job, options, err) : EXIT_OK;
	if (action == REQUEUE_LATER)
		return wait_for_nodes(job, options, err);
	if (back)
		return put_back(job, options, action, err);
	if (action == REQUEUE_REFUSED)
		return refuse(job, options, reason);
	if (!options->quiet)
		say("job %u is left as it is: %s", job->id, reason);
	return EXIT_OK;
}

/* One try. Returns an exit status, or -1 to try again. *left_out: an earlier attempt has left nodes
 * out. */
static int act(const struct options *options, bool *left_out, struct err *err)
{
	struct requeue_job job;
	char nodes[500];
	int attempt;
	if (requeue_load((uint32_t)options->job, &job, err) < 0)
		return -1;
	*left_out = leave_out_noted(job.comment, nodes, sizeof nodes, &attempt)
		&& attempt < options->end.attempt;
	int status = act_on(&job, options, err);
	if (status == EXIT_OK && later && job.attempt > options->end.attempt) {
		if (job.held && !options->held)
			later = LATER_HELD;
		else if (!job.completing)
			later = LATER_OVER;
	}
	requeue_clear(&job);
	return status;
}

static void bring_back(const struct requeue_job *job, const struct options *options)
{
	char reason[300];
	struct err err;
	if (!job->deserted
		|| requeue_decide(job, &options->end, reason, sizeof reason) != REQUEUE_SUBMIT)
		return;
	if (requeue_submit(job, REQUEUE_SUBMIT, &err) < 0)
		say("%s", err.text);
	else
		say("job %u is put back in the queue after attempt %d: the node of its script is gone",
			job->id, options->end.attempt);
}

/* Looks once: callers of these options ask repeatedly. An unknown answer is neither yes nor no. */
static int look(const struct options *options)
{
	struct requeue_job job;
	struct err err;
	signal(SIGALRM, on_deadline);
	alarm((unsigned)options->deadline + 1);
	requeue_init();
	int found = requeue_find((uint32_t)options->job, &job, &err);
	if (found < 0) {
		say("%s", err.text);
		return EXIT_LOST;
	}
	/* While a job completes, processes left on its nodes may still write. */
	bool runs =
		found && requeue_attempt_runs(&job, options->running ? options->end.attempt : job.attempt);
	if (options->runs)
		puts(runs ? "yes" : "no");
	if (options->times && found)
		printf("%.0f %.0f %.0f\n", job.submitted, job.began, job.ends);
	if (found && options->deserted)
		bring_back(&job, options);
	if (found)
		requeue_clear(&job);
	return options->runs || (options->times ? found : runs) ? EXIT_OK : EXIT_FAULT;
}

/* Waits for the note of another rank that ended for good, longer if the controller is slow: Slurm's
 * PMIx kills the others while that rank is still writing it. `late`: the controller was
 * unreachable, and that rank may not have noticed yet that it is back. Progress is told before: a
 * node that knows of none waits for it only so long. */
static int settle(const struct options *options, bool late, struct deadline deadline,
	struct err *err)
{
	struct requeue_job job;
	double began = clock_now();
	if (requeue_load((uint32_t)options->job, &job, err) < 0)
		return -1;
	double call = clock_now() - began;
	int told = breaker_tell(&options->breaker, &job, options->end.attempt, err);
	requeue_clear(&job);
	if (told < 0 && err->status == EXIT_LOST)
		return -1;
	deadline_sleep(deadline, options->settle + (late ? RETRY_SECONDS : 0) + NOTE_CALLS * call);
	return 0;
}

/* Once the job waits for its next attempt. It may still be put back if this fails. */
static void leave_out_node(const struct options *options)
{
	char why[200];
	struct err err;
	const char *node = options->leaving ? options->node : NULL;
	int rc = leave_out((uint32_t)options->job, options->end.attempt, node, why, sizeof why, &err);
	if (rc > 0)
		say("job %ld does not start on %s again, which is about to be taken away", options->job,
			node);
	else if (node && rc == 0)
		say("job %ld may start on %s again, though it is about to be taken away: %s", options->job,
			node, why);
	else if (node)
		say("%s", err.text);
}

/* One try of run(). */
static int attempt(const struct options *options, int tries, bool *settled, bool *left_out,
	struct deadline deadline, struct err *err)
{
	*settled = *settled || settle(options, tries > 0, deadline, err) == 0;
	return *settled ? act(options, left_out, err) : -1;
}

/* Tries until the controller answers. Each try loads the job again, since its state may have
 * changed. */
static int run(const struct options *options)
{
	struct err err;
	struct deadline deadline = deadline_in(options->deadline);
	bool settled = options->settle <= 0, left_out = false;
	int status;
	signal(SIGALRM, on_deadline);
	alarm((unsigned)options->deadline + 1);
	requeue_init();
	for (int tries = 0; (status = attempt(options, tries, &settled, &left_out, deadline, &err)) < 0;
		 tries++) {
		if (err.status != EXIT_LOST || !deadline_sleep(deadline, RETRY_SECONDS)) {
			say("%s", err.text);
			if (later && err.status == EXIT_LOST)
				later = LATER_AWAY;
			return err.status;
		}
	}
	if (status == EXIT_OK && (options->leaving || left_out))
		leave_out_node(options);
	return status;
}

/* With --later the last line says how it went. */
static int answer(const struct options *options)
{
	later = options->later ? LATER_DONE : NULL;
	int status = run(options);
	if (later)
		fprintf(stderr, "%s\n", later);
	return status;
}

/* The job and attempt of the batch script that this ends. */
static int read_script_job(struct options *options)
{
	const char *job = getenv("SLURM_JOB_ID"), *attempt = getenv("SLURM_RESTART_COUNT");
	int64_t number;
	if (!job || !job[0]) {
		say("SLURM_JOB_ID is not set: --status is for batch scripts");
		return -1;
	}
	if (!number_whole(job, 1, UINT32_MAX, &number)) {
		say("SLURM_JOB_ID=%s is not a job", job);
		return -1;
	}
	options->job = number;
	if (attempt && !number_whole(attempt, 0, INT_MAX, &number)) {
		say("SLURM_RESTART_COUNT=%s is no count of restarts", attempt);
		return -1;
	}
	options->end.attempt = attempt ? (int)number : 0;
	return 0;
}

static bool wants_requeue(long status)
{
	return status == EXIT_REQUEUE || status == EXIT_LOST || status >= 128;
}

int main(int argc, char **argv)
{
	struct options options = { .job = -1,
		.status = -1,
		.end = { .attempt = -1, .step = REQUEUE_ANY_STEP, .when = INFINITY },
		.breaker = { .seconds = -1 },
		.deadline = DEFAULT_DEADLINE };
	/* The plugin starts this outside the job's limits, so no other process of the user may take it
	 * over. Until here the mode of the installed file prevents that. */
	prctl(PR_SET_DUMPABLE, 0);
	descriptors_raise();
	argp_program_version = PACKAGE_STRING;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (only_looks(&options))
		return look(&options);
	if (options.status < 0)
		return answer(&options);
	if (wants_requeue(options.status) && read_script_job(&options) == 0)
		run(&options);
	return (int)options.status;
}
