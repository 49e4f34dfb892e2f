/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and ends muster-ckptd for a job. */
#include "config.h"

#include "plugin/job_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/last_words.h"
#include "common/run_as_user.h"

#define START_SECONDS 4.0 /* until execve, and then until it listens; the first step waits */
#define POLL_SECONDS 0.02
#define ANSWER_SECONDS 10 /* beyond drain, for muster-ckptd --finish to report */
#define LEAVE_SECONDS 2.0 /* until the process is gone, after its last answer or a SIGKILL */

/* Only Slurm's configuration, so that the service can ask whether its job exists; nothing of the
 * job's or slurmd's. */
static void service_env(const struct job_service *plan, char *conf, size_t size, char **env)
{
	snprintf(conf, size, "SLURM_CONF=%s", plan->conf ? plan->conf : "");
	env[0] = "PATH=/usr/bin:/bin";
	env[1] = plan->conf ? conf : NULL;
	env[2] = NULL;
}

/* ---- the end ---- */

static void say_lines(char *text, job_service_say *say, void *arg)
{
	char *rest = NULL;
	/* These lines go to the administrator's log, and the user may have written them. */
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		last_words_make_printable(line);
		say(arg, line);
	}
}

/* Asks the service to finish and waits for its answer. */
static void ask_to_finish(const struct job_service *plan, job_service_say *say, void *arg)
{
	char path[JOB_FOLDER_SOCKET_SIZE], seconds[16], conf[4200], output[8192];
	char *env[3];
	struct err err;
	const struct run_user user = { plan->uid, plan->gid, &plan->gid, 1 };
	snprintf(seconds, sizeof seconds, "%d", plan->drain);
	job_folder_socket(plan->run, plan->job, path);
	char *argv[] = { (char *)plan->program, "--finish", path, "--timeout", seconds, NULL };
	service_env(plan, conf, sizeof conf, env);
	int rc =
		run_as_user(&user, argv, env, plan->drain + ANSWER_SECONDS, output, sizeof output, &err);
	say_lines(output, say, arg);
	if (rc < 0)
		say(arg, err.text);
}

/* Ends the service, if it runs, once what was handed over is on disk. A service that can't be asked
 * (its user stopped it, or the program moved) ends by itself when its folder is gone and nothing is
 * left to write. */
static void end_service(const struct job_service *plan, const struct process *service,
	job_service_say *say, void *arg)
{
	char line[100];
	struct deadline deadline = deadline_in(plan->drain);
	if (!process_runs(service)) {
		say(arg, "the service had ended before its job");
		return;
	}
	if (plan->drain >= 0) {
		ask_to_finish(plan, say, arg);
		if (process_wait(service, LEAVE_SECONDS))
			return;
		job_folder_remove(plan->run, plan->job, NULL);
		if (process_wait(service, deadline_left(deadline)))
			return;
	}
	snprintf(line, sizeof line, "the service did not end within %d s (drain=) and is killed",
		plan->drain < 0 ? 0 : plan->drain);
	say(arg, line);
	process_kill(service);
	if (!process_wait(service, LEAVE_SECONDS))
		say(arg, "the service can't be killed: it waits for a disk");
}

int job_service_finish(const struct job_service *plan, job_service_say *say, void *arg,
	struct err *err)
{
	struct job_note note;
	int there = job_folder_exists(plan->run, plan->job, err);
	if (there <= 0)
		return there;
	bool noted = job_folder_read_note(plan->run, plan->job, &note);
	if (noted)
		end_service(plan, &note.service, say, arg);
	return job_folder_remove(plan->run, plan->job, err) < 0 ? -1 : noted;
}

/* ---- the start ---- */

static int ended_at_once(const struct job_service *plan, struct err *err)
{
	return err_set(err, "service: %s ended at once: its lines in the system's log say why",
		plan->program);
}

/* `bound` is the socket at which the service will listen. */
static int launch(const struct job_service *plan, int bound, struct job_note *note,
	job_service_say *say, void *arg, struct err *err)
{
	char path[JOB_FOLDER_SOCKET_SIZE], job[16], conf[4200], alive[4200];
	char *argv[12], *env[3];
	int n = 0;
	pid_t pid;
	struct run_user user = { .uid = plan->uid, .gid = plan->gid };
	AUTO_FREE gid_t *groups = NULL;
	snprintf(job, sizeof job, "%u", plan->job);
	argv[n++] = (char *)plan->program;
	argv[n++] = "--socket";
	argv[n++] = job_folder_socket(plan->run, plan->job, path);
	argv[n++] = "--job";
	argv[n++] = job;
	argv[n++] = "--syslog";
	argv[n++] = "--bound";
	if (plan->attempt >= 0) {
		snprintf(alive, sizeof alive, "%s --deadline=30 --running --deserted %u %d", plan->requeue,
			plan->job, plan->attempt);
		argv[n++] = "--alive";
		argv[n++] = alive;
	}
	argv[n] = NULL;
	service_env(plan, conf, sizeof conf, env);
	if (run_user_groups(plan->uid, plan->gid, &groups, &user.group_count, err) < 0)
		say(arg, err->text); /* goes on with the known group: ranks see what the service lacks */
	user.groups = groups;
	if (start_as_user(&user, argv, env, bound, START_SECONDS, &pid, err) < 0)
		return -1;
	*note = (struct job_note) { .attempt = plan->attempt };
	if (!process_find(pid, &note->service))
		return ended_at_once(plan, err);
	return job_folder_write_note(plan->run, plan->job, note, err);
}

static bool listens(int fd)
{
	int value = 0;
	socklen_t size = sizeof value;
	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size) == 0 && value;
}

static int wait_until_it_listens(const struct job_service *plan, int bound,
	const struct process *service, struct err *err)
{
	struct deadline deadline = deadline_in(START_SECONDS);
	while (!listens(bound)) {
		if (!process_runs(service))
			return ended_at_once(plan, err);
		if (!deadline_sleep(deadline, POLL_SECONDS))
			return err_set(err, "service: %s does not listen after %g s", plan->program,
				START_SECONDS);
	}
	return 0;
}

static int start(const struct job_service *plan, struct job_note *note, job_service_say *say,
	void *arg, struct err *err)
{
	if (job_folder_make(plan->run, plan->job, err) < 0)
		return -1;
	AUTO_CLOSE int bound = job_folder_bind(plan->run, plan->job, plan->uid, plan->gid, err);
	if (bound >= 0 && launch(plan, bound, note, say, arg, err) == 0
		&& wait_until_it_listens(plan, bound, &note->service, err) == 0)
		return 0;
	process_kill(&note->service);
	job_folder_remove(plan->run, plan->job, NULL);
	return -1;
}

int job_service_start(const struct job_service *plan, struct process *service, job_service_say *say,
	void *arg, struct err *err)
{
	struct job_note note = { .attempt = -1 };
	if (job_folder_read_note(plan->run, plan->job, &note) && note.attempt == plan->attempt
		&& process_runs(&note.service) && job_folder_has_socket(plan->run, plan->job)) {
		*service = note.service;
		return 0;
	}
	if (job_service_finish(plan, say, arg, err) < 0)
		return -1;
	if (plan->uid == 0)
		return err_set(err, "service: couldn't start one as root: submit the job as another user");
	note = (struct job_note) { .attempt = -1 };
	if (start(plan, &note, say, arg, err) < 0)
		return -1;
	*service = note.service;
	return 0;
}
