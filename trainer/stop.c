/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of Slurm's grace time (SIGTERM), of sbatch --signal (SIGUSR2) and of a terminal (SIGINT).
 *
 * They are blocked in every thread and taken by one that does nothing else, never by a handler: oneDNN's generated
 * products (seen with 2.6.3) run with the stack pointer in a heap buffer, and the frame that the kernel would push there
 * for a handler overwrites what lies in front of it. */
#include "trainer/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

static atomic_int noticed;

static sigset_t stop_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGINT);
	return set;
}

static void *take_signals(void *arg)
{
	sigset_t set = stop_signals();
	for (;;) {
		int signal, none = 0;
		if (sigwait(&set, &signal) == 0)
			atomic_compare_exchange_strong(&noticed, &none, signal);
	}
	return NULL;
}

int stop_install(struct err *err)
{
	sigset_t set = stop_signals();
	pthread_t thread;
	/* One that our parent ignored would be dropped before it could be waited for. */
	signal(SIGTERM, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (error == 0)
		error = pthread_create(&thread, NULL, take_signals, NULL);
	if (error != 0)
		return err_set(err, "signals: couldn't start the thread that takes them: %s", strerror(error));
	pthread_detach(thread);
	if (signal(SIGPIPE, SIG_IGN) == SIG_ERR)
		return err_set(err, "signals: couldn't ignore SIGPIPE: %m");
	return 0;
}

int stop_signal(void)
{
	return atomic_load(&noticed);
}

const char *stop_signal_name(int signal)
{
	switch (signal) {
	case SIGTERM:
		return "SIGTERM";
	case SIGUSR2:
		return "SIGUSR2";
	case SIGINT:
		return "SIGINT";
	default:
		return "a signal";
	}
}
