/* SPDX-License-Identifier: Apache-2.0 */
/* The program has one end of a socket as its standard input and output. A thread of ours reads the
 * other. The end that it reads ends when this process does, however that comes. Its errors are told
 * where ours are. */
#include "config.h"

#include "launch/spot_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/installed.h"
#include "common/log.h"
#include "common/notice.h"
#include "common/spawn.h"
#include "common/thread.h"
#include "launch/spot_source.h"

#define NOTICE_WORD "notice "
#define ACKNOWLEDGE_SECONDS 6.0

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pid_t pid; /* 0: none */
	pthread_t thread;
	FILE *from;
	bool noticed, acknowledged, closing, ended;
} watch = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void take_line(char *line)
{
	line[strcspn(line, "\n")] = '\0';
	bool notice = strncmp(line, NOTICE_WORD, strlen(NOTICE_WORD)) == 0;
	pthread_mutex_lock(&watch.lock);
	watch.noticed |= notice;
	watch.acknowledged |= strcmp(line, "acknowledged") == 0;
	pthread_cond_broadcast(&watch.changed);
	pthread_mutex_unlock(&watch.lock);
	if (!notice)
		return;
	log_warn("spot notice: this node is taken away (%s): the run stops after this step, saves and "
			 "asks to come back",
		line + strlen(NOTICE_WORD));
	log_leaving();
	notice_record(NOTICE_SPOT);
}

static void *listen_to(void *arg)
{
	char line[300];
	while (fgets(line, sizeof line, watch.from))
		take_line(line);
	pthread_mutex_lock(&watch.lock);
	bool alone = !watch.closing && !watch.noticed;
	watch.ended = true;
	fclose(watch.from);
	pthread_cond_broadcast(&watch.changed);
	pthread_mutex_unlock(&watch.lock);
	if (alone)
		log_warn("spot notices: muster-notice has ended: from now on none comes to this node");
	return arg;
}

static int start_program(const char *path, const char *source, int theirs, struct err *err)
{
	char *const argv[] = { (char *)path, (char *)source, NULL };
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, theirs, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, theirs, STDOUT_FILENO);
	/* What a terminal sends to this process's group is not for it. */
	int error = spawn_program(&watch.pid, path, &actions, argv, POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_destroy(&actions);
	if (error)
		watch.pid = 0;
	return error ? err_set(err, "spot notices: couldn't start %s: %s", path, strerror(error)) : 0;
}

static int start(const char *path, const char *source, struct err *err)
{
	int ends[2];
	watch.noticed = watch.acknowledged = watch.closing = watch.ended = false;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_set(err, "spot notices: couldn't make a socket: %m");
	int rc = start_program(path, source, ends[1], err);
	close(ends[1]);
	watch.from = rc == 0 ? fdopen(ends[0], "r") : NULL;
	if (watch.from && thread_start(&watch.thread, listen_to, NULL) == 0)
		return 0;
	if (watch.from)
		fclose(watch.from);
	else
		close(ends[0]);
	watch.pid = 0;
	return rc < 0 ? rc : err_set(err, "spot notices: couldn't start the thread that hears of them");
}

/* Where nobody has asked for a source, a training does without. */
static int miss_program(const char *path, bool asked, bool first, struct err *err)
{
	err_fail(err, EXIT_USAGE,
		"spot notices: couldn't find %.300s: install it (configure finds libcurl, or Muster's "
		"package muster-ckptd), or give --notice off (" SPOT_SOURCE_VARIABLE "=off)",
		path);
	if (!asked && first)
		log_warn("%s; this machine is in a cloud whose notices nobody hears", err->text);
	return asked ? -1 : 0;
}

int spot_watch_begin(const struct ident *ident, const char *source, struct err *err)
{
	char path[4096];
	struct spot_source read;
	const char *given = source ? source : getenv(SPOT_SOURCE_VARIABLE);
	bool asked = given && given[0] && strcmp(given, "auto") != 0, first = ident->local_rank == 0;
	if (spot_source_read(given, &read, err) < 0)
		return -1;
	if (read.cloud == SPOT_OFF || watch.pid)
		return 0;
	if (installed_program("bin", BINDIR, "muster-notice", path, sizeof path) < 0)
		return miss_program(path, asked, first, err);
	if (!first)
		return 0;
	deadline_condition(&watch.changed);
	if (start(path, asked ? given : "auto", err) < 0)
		return -1;
	log_debug("spot notices: %s tells them", spot_cloud_name(read.cloud));
	return 0;
}

/* Called with the lock held. */
static void wait_until(const bool *flag, struct deadline deadline)
{
	struct timespec until = deadline_timespec(deadline);
	while (!*flag && !watch.ended && !deadline_passed(deadline))
		pthread_cond_timedwait(&watch.changed, &watch.lock, &until);
}

static bool send_all(int fd, const char *word, size_t size)
{
	for (ssize_t n; size > 0; word += n, size -= (size_t)n)
		if ((n = send(fd, word, size, MSG_NOSIGNAL)) < 0)
			return false;
	return true;
}

void spot_watch_end(bool durable)
{
	static const char word[] = "durable\n";
	if (!watch.pid)
		return;
	pthread_mutex_lock(&watch.lock);
	watch.closing = true;
	if (durable && watch.noticed && !watch.ended
		&& send_all(fileno(watch.from), word, sizeof word - 1))
		wait_until(&watch.acknowledged, deadline_in(ACKNOWLEDGE_SECONDS));
	if (!watch.ended)
		shutdown(fileno(watch.from), SHUT_WR);
	wait_until(&watch.ended, deadline_in(1));
	if (!watch.ended)
		kill(watch.pid, SIGKILL); /* it still waits for somebody's reply */
	pthread_mutex_unlock(&watch.lock);
	pthread_join(watch.thread, NULL);
	waitpid(watch.pid, NULL, 0);
	watch.pid = 0;
}
