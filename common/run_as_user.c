/* SPDX-License-Identifier: Apache-2.0 */
/* Forks twice, drops every privilege, runs the program, and never waits longer than asked. */
#include "config.h"

#include "common/run_as_user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/process.h"

#define REPORT \
	3 /* the descriptor on which a program's start is reported; closed by a successful execve */
#define ABOVE_STREAMS 10
#define HIGHEST_DESCRIPTOR 65536
#define PASSWD_BYTES 65536

/* What the grandchild is to become. */
struct program {
	const struct run_user *user;
	char *const *argv, *const *env;
	int input, output; /* -1: /dev/null */
	int report;        /* receives the PID, and a message if the start fails */
	double seconds;    /* 0: it may run for ever */
};

/* Slurm sends these to every process that it counts as part of the step. */
static const int ignored_signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* The user's name in the user database, malloc'ed. NULL if there is no entry. */
static char *name_of(uid_t uid, struct err *err)
{
	struct passwd entry, *found = NULL;
	AUTO_FREE char *text = malloc(PASSWD_BYTES);
	int error = text ? getpwuid_r(uid, &entry, text, PASSWD_BYTES, &found) : ENOMEM;
	if (found)
		return strdup(found->pw_name);
	err_set(err, "run: couldn't find the groups of user %u: %s", (unsigned)uid,
		error ? strerror(error) : "the user database has no such user");
	return NULL;
}

int run_user_groups(uid_t uid, gid_t gid, gid_t **groups, size_t *count, struct err *err)
{
	AUTO_FREE char *name = name_of(uid, err);
	int room = 64, found = 0;
	*groups = NULL;
	for (int tries = 0; name && tries < 4; tries++) {
		free(*groups);
		found = room;
		*groups = calloc((size_t)room, sizeof **groups);
		if (!*groups || getgrouplist(name, gid, *groups, &found) >= 0)
			break;
		room = found > room ? found : 2 * room;
		found = 0;
	}
	*count = *groups ? (size_t)found : 0;
	if (*count)
		return 0;
	free(*groups);
	*groups = calloc(1, sizeof **groups);
	if (*groups)
		(*groups)[(*count)++] = gid;
	return name ? err_set(err, "run: couldn't list the groups of %s", name) : -1;
}

/* Changes group and user IDs, the saved ones included, so that nothing can restore them. */
static bool drop_privileges(const struct run_user *user)
{
	uid_t real, effective, saved;
	if (getresuid(&real, &effective, &saved) < 0)
		return false;
	if (real != 0 && effective != 0 && saved != 0)
		return true;
	if (effective != 0 && seteuid(0) < 0)
		return false;
	/* A set-user-ID program must not restore what is dropped here. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return false;
	return setgroups(user->group_count, user->groups) == 0
		&& setresgid(user->gid, user->gid, user->gid) == 0
		&& setresuid(user->uid, user->uid, user->uid) == 0 && (user->uid == 0 || setuid(0) < 0);
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
	/* Timers survive execve: SIGALRM ends the program. */
	struct itimerval timer = { .it_value = { (time_t)seconds,
								   (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6) } };
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* Slurm's daemons are protected from the OOM killer; programs that run for a user are not to be. */
static void set_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	ssize_t ignored = fd < 0 ? 0 : write(fd, "0", 1);
	(void)ignored;
	if (fd >= 0)
		close(fd);
}

/* Sets up the streams (/dev/null, or the input and output), the report, and closes everything else.
 * Any of them may itself be a descriptor below 3. */
static bool set_descriptors(const struct program *program)
{
	int null = open("/dev/null", O_RDWR);
	int input = fcntl(program->input < 0 ? null : program->input, F_DUPFD_CLOEXEC, ABOVE_STREAMS);
	int output =
		fcntl(program->output < 0 ? null : program->output, F_DUPFD_CLOEXEC, ABOVE_STREAMS);
	int report = fcntl(program->report, F_DUPFD_CLOEXEC, ABOVE_STREAMS);
	if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0
		|| dup3(report, REPORT, O_CLOEXEC) < 0)
		return false;
	if (close_range(REPORT + 1, ~0u, 0) < 0)
		for (int fd = REPORT + 1; fd < HIGHEST_DESCRIPTOR; fd++)
			close(fd);
	return true;
}

static _Noreturn void give_up(const char *message)
{
	ssize_t ignored = write(REPORT, message, strlen(message));
	(void)ignored;
	_exit(1);
}

/* The child of a threaded process: only async-signal-safe calls are allowed. */
static _Noreturn void become(const struct program *program)
{
	pid_t self = getpid();
	setsid();
	set_signals(program->seconds);
	set_oom_score();
	umask(077);
	if (!set_descriptors(program) || write(REPORT, &self, sizeof self) != sizeof self)
		_exit(1);
	if (chdir("/") < 0 || !drop_privileges(program->user))
		give_up("its privileges can't be dropped");
	execve(program->argv[0], program->argv, program->env);
	give_up("it can't be executed");
}

/* The process between the caller and the program: it ends at once, so that the program is no longer
 * the caller's descendant. */
static _Noreturn void become_orphan(const struct program *program)
{
	pid_t pid = fork();
	if (pid == 0)
		become(program);
	_exit(pid < 0);
}

/* Reads until the other end is closed; false when the deadline passes first. `output` gets at most
 * size - 1 bytes and a NUL, *used their number; more is discarded. */
static bool read_all(int fd, struct deadline deadline, char *output, size_t size, size_t *used)
{
	char rest[512];
	*used = 0;
	output[0] = '\0';
	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		int ready = poll(&wait, 1, (int)(deadline_left(deadline) * 1000) + 1);
		if (ready == 0 || (ready < 0 && errno != EINTR) || deadline_passed(deadline))
			return false;
		if (ready < 0)
			continue;
		bool room = *used + 1 < size;
		ssize_t n = room ? read(fd, output + *used, size - 1 - *used) : read(fd, rest, sizeof rest);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0;
		if (room)
			output[ *used += (size_t)n] = '\0';
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

/* The program reported its PID and then nothing: it hangs in execve. */
static void kill_late(const char *report)
{
	struct process process;
	pid_t pid;
	memcpy(&pid, report, sizeof pid);
	if (process_find(pid, &process))
		process_kill(&process);
}

/* Forks the program and reads how its start went. Closes program->report; program->output
 * stays the caller's. */
static int launch(const struct program *program, int report, struct deadline deadline, pid_t *pid,
	struct err *err)
{
	char text[200];
	size_t used;
	pid_t between = fork();
	if (between == 0)
		become_orphan(program);
	close(program->report);
	if (between < 0)
		return err_set(err, "run: couldn't fork: %m");
	if (reap(between, err) < 0)
		return -1;
	if (!read_all(report, deadline, text, sizeof text, &used)) {
		if (used >= sizeof *pid)
			kill_late(text);
		return err_set(err, "run: couldn't start %s: it took too long", program->argv[0]);
	}
	if (used != sizeof *pid)
		return err_set(err, "run: couldn't start %s as user %u: %s", program->argv[0],
			(unsigned)program->user->uid,
			used > sizeof *pid ? text + sizeof *pid : "its process ended at once");
	memcpy(pid, text, sizeof *pid);
	return 0;
}

int run_as_user(const struct run_user *user, char *const *argv, char *const *env, double seconds,
	char *output, size_t size, struct err *err)
{
	int ends[2], report[2];
	pid_t pid;
	struct process helper;
	size_t used;
	struct deadline deadline = deadline_in(seconds);
	output[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set(err, "run: couldn't make a pipe: %m");
	AUTO_CLOSE int from = ends[0];
	AUTO_CLOSE int to = ends[1];
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_set(err, "run: couldn't make a pipe: %m");
	AUTO_CLOSE int news = report[0];
	const struct program program = { user, argv, env, -1, to, report[1], seconds };
	if (launch(&program, news, deadline, &pid, err) < 0)
		return -1;
	bool runs = process_find(pid, &helper);
	close(to);
	to = -1;
	if (!read_all(from, deadline, output, size, &used)) {
		if (runs) /* the user may have stopped it, so that SIGALRM stays pending */
			process_kill(&helper);
		return err_set(err, "run: couldn't wait for %s: it took more than %g s", argv[0], seconds);
	}
	return 0;
}

int start_as_user(const struct run_user *user, char *const *argv, char *const *env, int input,
	double seconds, pid_t *pid, struct err *err)
{
	int report[2];
	if (pipe2(report, O_CLOEXEC) < 0)
		return err_set(err, "run: couldn't make a pipe: %m");
	AUTO_CLOSE int news = report[0];
	const struct program program = { user, argv, env, input, -1, report[1], 0 };
	return launch(&program, news, deadline_in(seconds), pid, err);
}
