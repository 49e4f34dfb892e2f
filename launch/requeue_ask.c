/* SPDX-License-Identifier: Apache-2.0 */
/* Runs muster-requeue, since libslurm may end the process that calls it, which must not be ours. */
#include "config.h"

#include "launch/requeue_ask.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/spawn.h"
#include "launch/requeue_program.h"

#define ANSWER_SECONDS "10"
#define WAIT_SECONDS 15.0

static void wait_for_child(pid_t child, const char *program)
{
	struct deadline deadline = deadline_in(WAIT_SECONDS);
	struct err err;
	int status;
	pid_t ended;
	while ((ended = waitpid(child, &status, WNOHANG)) == 0 && deadline_sleep(deadline, 0.02))
		;
	if (ended == child && requeue_program_began(program, status, &err) < 0) {
		log_warn("%s", err.text);
		return;
	}
	if (ended == child) {
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			log_warn("requeue: %s did not put the job back: it comes back only if its script asks "
					 "for it",
				program);
		return;
	}
	log_warn("requeue: %s did not answer for %.0f s", program, WAIT_SECONDS);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}

static bool restarts_are_left(void)
{
	const char *left = getenv(IDENT_RESTARTS_LEFT);
	return left && strtol(left, NULL, 10) > 0;
}

void requeue_ask(const struct ident *ident, int status)
{
	char job[16], attempt[16], program[PATH_MAX];
	char *argv[] = { (char *)"muster-requeue", (char *)"--deadline", (char *)ANSWER_SECONDS, job,
		attempt, NULL };
	struct err err;
	pid_t child;
	if ((status != EXIT_REQUEUE && status != EXIT_LOST) || !ident->job || getenv("MUSTER_ATTEMPT"))
		return;
	if (status == EXIT_LOST && restarts_are_left())
		return;
	snprintf(job, sizeof job, "%u", ident->job);
	snprintf(attempt, sizeof attempt, "%d", ident->attempt);
	if (requeue_program_find(program, sizeof program, &err) < 0) {
		log_warn("%s", err.text);
		return;
	}
	int error = spawn_program(&child, program, NULL, argv, 0);
	if (error)
		log_warn("requeue: couldn't run %s: %s", program, strerror(error));
	else
		wait_for_child(child, program);
}
