/* SPDX-License-Identifier: Apache-2.0 */
/* A thread inherits the signal mask of the thread that starts it. If it set its own mask, a signal
 * could arrive before that. */
#include "common/thread.h"

#include <stddef.h>

/* If blocked, these would end the process without the program's handler, which may print where the
 * fault is. */
static const int faults[] = { SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP };

void thread_block_signals(sigset_t *before)
{
	sigset_t set;
	sigfillset(&set);
	for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
		sigdelset(&set, faults[i]);
	pthread_sigmask(SIG_BLOCK, &set, before);
}

void thread_restore_signals(const sigset_t *before)
{
	pthread_sigmask(SIG_SETMASK, before, NULL);
}

int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg)
{
	pthread_t own;
	sigset_t before;
	thread_block_signals(&before);
	int error = pthread_create(thread ? thread : &own, NULL, body, arg);
	thread_restore_signals(&before);
	if (error == 0 && !thread)
		pthread_detach(own);
	return error;
}
