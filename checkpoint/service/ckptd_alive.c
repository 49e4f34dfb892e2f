/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the command as a child process and never waits for it, so that it can't hold up the
 * service. */
#include "checkpoint/service/ckptd_alive.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/log.h"
#include "common/spawn.h"

#define WORDS_MAX 16
#define LONGEST 60.0 /* seconds that the command may take */
#define LOOK 0.2     /* seconds between looks at a running command */

/* Splits a command into words, which point into *text; the caller frees *text. */
static void split(const char *command, char **text, char *words[WORDS_MAX + 1])
{
	char *rest = NULL;
	int n = 0;
	*text = strdup(command);
	for (char *word = *text ? strtok_r(*text, " ", &rest) : NULL; word && n < WORDS_MAX;
		 word = strtok_r(NULL, " ", &rest))
		words[n++] = word;
	words[n] = NULL;
}

static pid_t start(const char *command)
{
	AUTO_FREE char *text = NULL;
	char *argv[WORDS_MAX + 1];
	pid_t pid;
	split(command, &text, argv);
	int error = argv[0] ? spawn_program(&pid, argv[0], NULL, argv, 0) : ENOENT;
	if (error)
		log_warn("service: couldn't ask whether the job is there: %s", strerror(error));
	return error ? 0 : pid;
}

static bool look(struct ckptd_alive *alive, double now)
{
	int status;
	pid_t ended = waitpid(alive->pid, &status, WNOHANG);
	if (ended == 0 && now < alive->until)
		return false;
	if (ended == 0) {
		kill(alive->pid, SIGKILL);
		waitpid(alive->pid, &status, 0);
	}
	alive->pid = 0;
	return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

bool ckptd_alive_step(struct ckptd_alive *alive, bool ask)
{
	double now = clock_now();
	if (!alive->command)
		return false;
	if (alive->pid > 0)
		return look(alive, now) && ask;
	if (!ask || alive->next == 0)
		alive->next = now + alive->every;
	if (now < alive->next)
		return false;
	alive->next = now + alive->every;
	alive->until = now + LONGEST;
	alive->pid = start(alive->command);
	return false;
}

void ckptd_alive_poll(struct ckptd_alive *alive, struct ckptd_polls *polls)
{
	if (!alive->command)
		return;
	if (alive->pid > 0)
		ckptd_polls_within(polls, LOOK);
	else if (alive->next > 0)
		ckptd_polls_within(polls, alive->next - clock_now());
}
