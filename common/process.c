/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/stat gives the identity; a pidfd ensures that the check and the signal reach the same
 * process. */
#include "config.h"

#include "common/process.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"

#define POLL_SECONDS 0.02
#define STAT_BYTES 1024

/* Reads the fields from the third on (proc(5)), after the name, which may contain spaces and
 * parentheses. NULL: there is no such process. */
static const char *read_fields(pid_t pid, char text[STAT_BYTES])
{
	char path[40];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	AUTO_FCLOSE FILE *file = fopen(path, "re");
	const char *end = file && fgets(text, STAT_BYTES, file) ? strrchr(text, ')') : NULL;
	return end ? end + 1 : NULL;
}

pid_t process_parent(pid_t pid)
{
	char text[STAT_BYTES];
	int parent;
	const char *fields = read_fields(pid, text);
	return fields && sscanf(fields, " %*c %d", &parent) == 1 ? parent : 0;
}

bool process_find(pid_t pid, struct process *process)
{
	char text[STAT_BYTES], state;
	const char *fields = read_fields(pid, text);
	if (!fields
		|| sscanf(fields,
			   " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
			   &state, &process->start)
			!= 2)
		return false;
	process->pid = pid;
	return state != 'Z' && state != 'X';
}

bool process_runs(const struct process *process)
{
	struct process now;
	return process->pid > 1 && process_find(process->pid, &now) && now.start == process->start;
}

bool process_wait(const struct process *process, double seconds)
{
	struct deadline deadline = deadline_in(seconds);
	while (process_runs(process))
		if (!deadline_sleep(deadline, POLL_SECONDS))
			return !process_runs(process);
	return true;
}

void process_signal(const struct process *process, int signal)
{
	if (process->pid <= 1)
		return;
	AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (!process_runs(process))
		return;
	if (fd >= 0)
		syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
	else
		kill(process->pid, signal); /* Linux before 5.3 has no pidfd_open */
}

void process_kill(const struct process *process)
{
	process_signal(process, SIGKILL);
}
