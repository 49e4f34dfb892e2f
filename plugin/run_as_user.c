/* SPDX-License-Identifier: Apache-2.0 */
/* Fork twice, drop every privilege, run, and never wait longer than asked. */
#include "config.h"

#include "plugin/run_as_user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"

#define FAILED '\001' /* in front of a message of ours in the output */
#define HIGHEST_DESCRIPTOR 1024

/* Slurm sends them to every process that it counts to the step. */
static const int ignored_signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* Group and user ids, saved ones included; nothing can bring them back. */
static bool drop_privileges(const struct run_user *user)
{
	uid_t real, effective, saved;
	if (getresuid(&real, &effective, &saved) < 0)
		return false;
	if (real != 0 && effective != 0 && saved != 0)
		return true;
	if (effective != 0 && seteuid(0) < 0)
		return false;
	return setgroups(user->group_count, user->groups) == 0 && setresgid(user->gid, user->gid, user->gid) == 0 &&
		setresuid(user->uid, user->uid, user->uid) == 0 && (user->uid == 0 || setuid(0) < 0);
}

static _Noreturn void give_up(const char *message)
{
	char mark = FAILED;
	ssize_t ignored = write(1, &mark, 1);
	ignored = write(1, message, strlen(message));
	(void)ignored;
	_exit(1);
}

static void set_signals(double seconds)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	for (size_t i = 0; i < sizeof ignored_signals / sizeof ignored_signals[0]; i++)
		signal(ignored_signals[i], SIG_IGN);
	/* Timers outlive execve. */
	struct itimerval timer = { .it_value = { (time_t)seconds, (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) } };
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* In the child of a threaded process: only calls that are safe after fork. */
static _Noreturn void become(const struct run_user *user, int output, double seconds, char *const *argv, char *const *env)
{
	int null = open("/dev/null", O_RDWR);
	setsid();
	set_signals(seconds);
	dup2(null, 0);
	dup2(output, 1);
	dup2(output, 2);
	if (close_range(3, ~0u, 0) < 0)
		for (int fd = 3; fd < HIGHEST_DESCRIPTOR; fd++)
			close(fd);
	if (chdir("/") < 0 || !drop_privileges(user))
		give_up("its privileges can't be dropped");
	execve(argv[0], argv, env);
	give_up("it can't be executed");
}

/* The process between the caller and the program: it ends at once, and the program gets another parent. */
static _Noreturn void become_orphan(const struct run_user *user, int output, double seconds, char *const *argv,
	char *const *env)
{
	pid_t pid = fork();
	if (pid == 0)
		become(user, output, seconds, argv, env);
	_exit(pid < 0);
}

/* Reads until the program closes its output or the deadline passes. Returns false for the latter. */
static bool read_output(int fd, struct deadline deadline, char *output, size_t size)
{
	size_t used = 0;
	char rest[512];
	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		int ready = poll(&wait, 1, (int)(deadline_left(deadline) * 1000) + 1);
		if (ready == 0 || (ready < 0 && errno != EINTR) || deadline_passed(deadline))
			return false;
		if (ready < 0)
			continue;
		bool room = used + 1 < size;
		ssize_t n = room ? read(fd, output + used, size - 1 - used) : read(fd, rest, sizeof rest);
		if (n <= 0)
			return n == 0;
		if (room)
			output[used += (size_t)n] = '\0';
	}
}

static int reap(pid_t pid, struct err *err)
{
	int status;
	pid_t got;
	while ((got = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	if (got < 0 || status != 0)
		return err_set(err, "run: couldn't fork");
	return 0;
}

int run_as_user(const struct run_user *user, char *const *argv, char *const *env, double seconds, char *output,
	size_t size, struct err *err)
{
	int ends[2];
	struct deadline deadline = deadline_in(seconds);
	output[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set(err, "run: couldn't make a pipe: %m");
	AUTO_CLOSE int from = ends[0];
	pid_t pid = fork();
	if (pid == 0)
		become_orphan(user, ends[1], seconds, argv, env);
	close(ends[1]);
	if (pid < 0)
		return err_set(err, "run: couldn't fork: %m");
	if (reap(pid, err) < 0)
		return -1;
	if (!read_output(from, deadline, output, size))
		return err_set(err, "run: couldn't wait for %s: it took more than %g s", argv[0], seconds);
	char *failure = strchr(output, FAILED);
	if (failure)
		return err_set(err, "run: couldn't start %s as user %u: %s", argv[0], (unsigned)user->uid, failure + 1);
	return 0;
}
