/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to a service, or spawns one. It does not use fork: a trainer with 100 GB would pay for
 * the copy of its page tables, and afterwards for each page that it writes. muster-ckptd itself
 * does the clean-up that a forked child would do. */
#include "config.h"
#include "checkpoint/client/ckptd_start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "checkpoint/protocol/ckptd_socket.h"
#include "common/auto.h"
#include "common/installed.h"
#include "common/io.h"
#include "common/spawn.h"

#define PROGRAM "muster-ckptd"
#define CLIENT_FD 3 /* the descriptor's number in the new program; above standard error */
/* Our own copy has at least this number, so that moving it to CLIENT_FD overwrites nothing. */
#define CLEAR_OF 16

int ckptd_start_connect(const char *path, struct ckptd_link *link, struct err *err)
{
	pid_t pid;
	int fd = ckptd_socket_connect(path, &pid, err);
	if (fd < 0)
		return -1;
	ckptd_conn_open(&link->conn, fd);
	ckptd_process_open(&link->process, pid, false);
	/* While the connection is open, the pid is that of its process, and ckptd_process_open now
	 * holds that process. If the connection has ended, the pid may be another process's already. */
	struct pollfd open = { .fd = fd };
	if (poll(&open, 1, 0) == 0)
		return 0;
	ckptd_start_leave(link);
	err_fail(err, EXIT_LOST, "service: the one at %s ended", path);
	errno = 0;
	return -1;
}

static int find_program(char *path, size_t size, struct err *err)
{
	const char *given = getenv("MUSTER_CKPTD_PROGRAM");
	if (given && given[0]) {
		snprintf(path, size, "%s", given);
		return access(path, X_OK) == 0
			? 0
			: err_fail(err, EXIT_USAGE, "service: MUSTER_CKPTD_PROGRAM: couldn't execute %s: %m",
				path);
	}
	return installed_program("bin", BINDIR, PROGRAM, path, size) == 0
		? 0
		: err_fail(err, EXIT_USAGE,
			"service: couldn't find " PROGRAM " beside this program or libmuster, or in " BINDIR
			": name it in MUSTER_CKPTD_PROGRAM");
}

static int spawn(const char *program, int client, pid_t *pid)
{
	char digits[12];
	char *const argv[] = { (char *)PROGRAM, (char *)"--client-fd", digits, NULL };
	posix_spawn_file_actions_t actions;
	snprintf(digits, sizeof digits, "%d", CLIENT_FD);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, client, CLIENT_FD);
	/* The service does not get a session of its own: Linux shares processors among sessions first
	 * (sched_autogroup), so threads of the service that give way would only give way to one
	 * another. The service ignores the signals that a terminal sends. */
	int error = spawn_program(pid, program, &actions, argv, POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_destroy(&actions);
	return error;
}

int ckptd_start_own(struct ckptd_link *link, struct err *err)
{
	char program[4096];
	int ends[2];
	pid_t pid = -1;
	if (find_program(program, sizeof program, err) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return err_fail(err, io_status(errno), "service: couldn't make a pair of sockets: %m");
	AUTO_CLOSE int ours = ends[0], theirs = ends[1];
	AUTO_CLOSE int clear = fcntl(theirs, F_DUPFD_CLOEXEC, CLEAR_OF);
	int error = clear < 0 ? errno : spawn(program, clear, &pid);
	if (error)
		return err_set(err, "service: couldn't start %s: %s", program, strerror(error));
	ckptd_conn_open(&link->conn, AUTO_TAKE_FD(ours));
	ckptd_process_open(&link->process, pid, true);
	return 0;
}

void ckptd_start_leave(struct ckptd_link *link)
{
	ckptd_conn_close(&link->conn);
	ckptd_process_close(&link->process);
}
