/* SPDX-License-Identifier: Apache-2.0 */
/* The rules for the exit statuses of ranks. */
#include "plugin/task_end.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/err.h"

/* The signal that ended the task, also inside a shell; 0 for none. */
static int signal_of(int wait_status)
{
	if (WIFSIGNALED(wait_status))
		return WTERMSIG(wait_status);
	int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
	return code > 128 && code <= 128 + SIGRTMAX ? code - 128 : 0;
}

enum task_end task_end_judge(int wait_status)
{
	int signal_number = signal_of(wait_status);
	if (signal_number == SIGKILL || signal_number == SIGTERM)
		return TASK_KILLED;
	if (signal_number)
		return TASK_REQUEUE;
	switch (WEXITSTATUS(wait_status)) {
	case EXIT_OK: return TASK_FINISHED;
	case EXIT_REQUEUE:
	case EXIT_LOST: return TASK_REQUEUE;
	default: return TASK_FINAL;
	}
}

bool task_end_is_counted(int wait_status)
{
	return signal_of(wait_status) || WEXITSTATUS(wait_status) == EXIT_LOST;
}

enum task_blame task_end_blame(int wait_status)
{
	switch (signal_of(wait_status)) {
	case 0: break;
	case SIGKILL: return TASK_BLAME_KILLED;
	case SIGHUP:
	case SIGINT:
	case SIGTERM:
	case SIGUSR1:
	case SIGUSR2: return TASK_BLAME_TOLD;
	default: return TASK_BLAME_OWN;
	}
	int code = WEXITSTATUS(wait_status);
	return code == EXIT_REQUEUE ? TASK_BLAME_TOLD
		: code == EXIT_LOST     ? TASK_BLAME_LOST
								: TASK_BLAME_OWN;
}

char *task_end_describe(int wait_status, char *out, size_t size)
{
	int signal_number = signal_of(wait_status);
	int code = WEXITSTATUS(wait_status);
	if (signal_number)
		snprintf(out, size, "was killed by signal %d (%s)", signal_number,
			strsignal(signal_number));
	else if (code == EXIT_REQUEUE)
		snprintf(out, size, "asked to be put back in the queue (status %d)", code);
	else if (code == EXIT_LOST)
		snprintf(out, size, "lost a peer or its storage (status %d)", code);
	else
		snprintf(out, size, "exited with status %d", code);
	return out;
}
