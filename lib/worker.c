/* SPDX-License-Identifier: Apache-2.0 */
/* A process that works for a rank. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "lib/muster_private.h"

static _Atomic pid_t master;

static void end_for_master(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if (info->si_pid == atomic_load(&master))
		_exit(0);
}

int muster_worker_begin(int64_t trainer)
{
	struct sigaction term = { .sa_sigaction = end_for_master,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
	struct err err;
	sigset_t open;
	if (trainer < 1 || trainer > INT32_MAX) {
		err_fail(&err, EXIT_USAGE, "worker: %lld is no process", (long long)trainer);
		return muster_failed(&err);
	}
	atomic_store(&master, (pid_t)trainer);
	sigemptyset(&term.sa_mask);
	sigemptyset(&open);
	sigaddset(&open, SIGTERM);
	if (sigaction(SIGTERM, &term, NULL) < 0 || signal(SIGUSR1, SIG_IGN) == SIG_ERR
		|| signal(SIGUSR2, SIG_IGN) == SIG_ERR || sigprocmask(SIG_UNBLOCK, &open, NULL) < 0) {
		err_set(&err, "worker: couldn't handle signals: %m");
		return muster_failed(&err);
	}
	return MUSTER_OK;
}
