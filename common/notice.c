/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the signals of Slurm's grace time (SIGTERM), of sbatch --signal (SIGUSR1 or SIGUSR2) and of
 * a terminal (SIGINT).
 *
 * They are blocked in every thread and taken by a dedicated one, not by a handler: oneDNN's
 * generated matrix products (seen with 2.6.3) run with the stack pointer in a heap buffer, and the
 * frame that the kernel would push there for a handler overwrites the memory below it. In a program
 * of other people's a thread may be older than this mask, or may lift it. There a handler takes the
 * signal: the default action would end the process. */
#include "common/io.h"
#include "common/notice.h"

#include <errno.h>
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
	{ SIGTERM, "SIGTERM" }, { SIGUSR1, "SIGUSR1" }, { SIGUSR2, "SIGUSR2" },
	{ SIGINT, "SIGINT" }, /* the last, since some programs keep it */
};
#define NOTICES (sizeof notices / sizeof notices[0])

static size_t taken; /* how many of them, once they are taken */
static atomic_int noticed;
static atomic_int readable = -1;

static sigset_t notice_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < taken; i++)
		sigaddset(&set, notices[i].number);
	return set;
}

void notice_record(int signal)
{
	int none = 0, fd = atomic_load(&readable);
	if (atomic_compare_exchange_strong(&noticed, &none, signal) && fd >= 0)
		eventfd_write(fd, 1);
}

static void handle(int signal)
{
	int error = errno;
	notice_record(signal);
	errno = error;
}

static void *take_signals(void *arg)
{
	sigset_t set = notice_signals();
	for (;;) {
		int signal;
		if (sigwait(&set, &signal) == 0)
			notice_record(signal);
	}
	return NULL;
}

static int start(struct err *err)
{
	const sigset_t set = notice_signals();
	struct sigaction action = { .sa_handler = handle, .sa_flags = SA_ONSTACK | SA_RESTART };
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return err_fail(err, io_status(errno), "signals: couldn't make an eventfd: %m");
	/* Also where our parent ignored a signal, which would be discarded before sigwait() sees it. */
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < taken; i++)
		sigaction(notices[i].number, &action, NULL);
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

static int take(bool interrupt, struct err *err)
{
	if (notice_fd() < 0) {
		taken = interrupt ? NOTICES : NOTICES - 1;
		return start(err);
	}
	const sigset_t set = notice_signals();
	int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
	return error ? err_set(err, "signals: couldn't block them: %s", strerror(error)) : 0;
}

int notice_take(bool interrupt, struct err *err)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock);
	int rc = take(interrupt, err);
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
	if (signal == NOTICE_LAUNCHER)
		return "the end of the launcher on its node";
	if (signal == NOTICE_SPOT)
		return "a spot notice";
	return signal == NOTICE_TIME_LIMIT ? "the time limit" : "a signal";
}
