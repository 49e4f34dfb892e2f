/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the signals of Slurm's grace time (SIGTERM), of sbatch --signal (SIGUSR1 or SIGUSR2) and of
 * a terminal (SIGINT).
 *
 * They are blocked in every thread and taken by a dedicated one, never by a handler: oneDNN's
 * generated matrix products (seen with 2.6.3) run with the stack pointer in a heap buffer, and the
 * frame that the kernel would push there for a handler overwrites the memory below it. */
#include "common/notice.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/thread.h"

static const struct {
	int number;
	const char *name;
} notices[] = {
	{ SIGTERM, "SIGTERM" },
	{ SIGUSR1, "SIGUSR1" },
	{ SIGUSR2, "SIGUSR2" },
	{ SIGINT, "SIGINT" },
};
#define NOTICES (sizeof notices / sizeof notices[0])

static atomic_int noticed;
static atomic_int readable = -1;

static sigset_t notice_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < NOTICES; i++)
		sigaddset(&set, notices[i].number);
	return set;
}

static void *take_signals(void *arg)
{
	sigset_t set = notice_signals();
	for (;;) {
		int signal, none = 0;
		if (sigwait(&set, &signal) == 0 && atomic_compare_exchange_strong(&noticed, &none, signal))
			eventfd_write(atomic_load(&readable), 1);
	}
	return NULL;
}

static int start(struct err *err)
{
	sigset_t set = notice_signals();
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return err_set(err, "signals: couldn't make an eventfd: %m");
	/* A signal that our parent ignored would be discarded before sigwait() sees it. */
	for (size_t i = 0; i < NOTICES; i++)
		signal(notices[i].number, SIG_DFL);
	atomic_store(&readable, fd);
	int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (error == 0)
		error = thread_start(NULL, take_signals, NULL);
	if (error == 0)
		return 0;
	atomic_store(&readable, -1);
	close(fd);
	return err_set(err, "signals: couldn't start the thread that takes them: %s", strerror(error));
}

int notice_take(struct err *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	int rc = notice_fd() >= 0 ? 0 : start(err);
	pthread_mutex_unlock(&lock);
	return rc;
}

int notice_signal(void)
{
	return atomic_load(&noticed);
}

int notice_fd(void)
{
	return atomic_load(&readable);
}

const char *notice_name(int signal)
{
	for (size_t i = 0; i < NOTICES; i++)
		if (notices[i].number == signal)
			return notices[i].name;
	return "a signal";
}
