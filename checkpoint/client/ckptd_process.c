/* SPDX-License-Identifier: Apache-2.0 */
/* Uses a pidfd where the kernel has them. A child is safe without one: its number can't be reused
 * before it is waited for. */
#include "config.h"
#include "checkpoint/client/ckptd_process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* the same on all architectures; older headers lack them */
#define SYS_pidfd_send_signal 424
#endif
#define LOOK 0.01

void ckptd_process_open(struct ckptd_process *process, pid_t pid, bool child)
{
	*process = (struct ckptd_process) { .pid = pid,
		.child = child,
		.unseen = pid == 0,
		.fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1 };
}

void ckptd_process_close(struct ckptd_process *process)
{
	if (process->pid > 0) {
		ckptd_process_alive(process);
		if (process->fd >= 0)
			close(process->fd);
	}
	*process = (struct ckptd_process) { .fd = -1 };
}

/* Other code in this process may have waited for any child and taken the status: then waitpid fails
 * with ECHILD. */
static bool is_child_alive(struct ckptd_process *process)
{
	pid_t got = waitpid(process->pid, &process->status, WNOHANG);
	process->ended = got == process->pid || (got < 0 && errno == ECHILD);
	if (process->ended)
		process->child = false;
	return !process->ended;
}

bool ckptd_process_alive(struct ckptd_process *process)
{
	struct pollfd wait = { .fd = process->fd, .events = POLLIN };
	if (process->pid <= 0 || process->ended)
		return process->unseen;
	if (process->child)
		return is_child_alive(process);
	process->ended =
		process->fd >= 0 ? poll(&wait, 1, 0) > 0 : kill(process->pid, 0) < 0 && errno == ESRCH;
	return !process->ended;
}

bool ckptd_process_wait(struct ckptd_process *process, struct deadline deadline)
{
	while (ckptd_process_alive(process))
		if (!deadline_sleep(deadline, LOOK))
			return false;
	return true;
}

bool ckptd_process_kill(struct ckptd_process *process, struct deadline deadline)
{
	if (!ckptd_process_alive(process))
		return true;
	if (process->fd >= 0)
		syscall(SYS_pidfd_send_signal, process->fd, SIGKILL, NULL, 0);
	else if (process->pid > 0)
		kill(process->pid, SIGKILL);
	return ckptd_process_wait(process, deadline);
}

char *ckptd_process_fate(struct ckptd_process *process, char *out, size_t size)
{
	if (ckptd_process_alive(process))
		snprintf(out, size, "closed the connection");
	else if (WIFSIGNALED(process->status))
		snprintf(out, size, "was killed by signal %d", WTERMSIG(process->status));
	else if (WEXITSTATUS(process->status))
		snprintf(out, size, "ended with status %d", WEXITSTATUS(process->status));
	else
		snprintf(out, size, "ended");
	return out;
}
