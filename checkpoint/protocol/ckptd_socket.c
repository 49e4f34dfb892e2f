/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and checks the folder of the socket once, and then uses only its descriptor. So no name is
 * resolved twice, and the path may be longer than a socket's address. */
#include "config.h"
#include "checkpoint/protocol/ckptd_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/clock.h"
#include "common/descriptors.h"
#include "common/log.h"

#define LOCK_SECONDS 5.0
#define CONNECT_SECONDS 5
#define BACKLOG 64
#define OVERFLOW_USER 65534 /* the kernel's default */

/* ---- users ---- */

static unsigned overflow_user(void)
{
	AUTO_FCLOSE FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
	unsigned user;
	return file && fscanf(file, "%u", &user) == 1 ? user : OVERFLOW_USER;
}

/* Whether the number is that of one user only. In a user namespace, all users that are not mapped
 * have the same number, which may also be that of the namespace's own process. */
static bool names_one_user(uid_t user)
{
	unsigned first, outside, count;
	if (user != overflow_user())
		return true;
	AUTO_FCLOSE FILE *map = fopen("/proc/self/uid_map", "re");
	return map && fscanf(map, "%u %u %u", &first, &outside, &count) == 3 && count == UINT32_MAX;
}

/* ---- the folder ---- */

static int split(const char *path, char *folder, size_t size, char name[CKPTD_NAME_MAX + 1],
	struct err *err)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	const char *base = slash ? slash + 1 : path;
	if (!base[0] || strcmp(base, ".") == 0 || strcmp(base, "..") == 0
		|| strlen(base) > CKPTD_NAME_MAX || length >= size)
		return err_fail(err, EXIT_USAGE, "service: %s is no path of a socket, or too long", path);
	strcpy(name, base);
	if (!slash)
		strcpy(folder, ".");
	else
		snprintf(folder, size, "%.*s", (int)(length ? length : 1), path);
	return 0;
}

/* Only root can put anything into such a folder, so its contents are meant for us. In a user
 * namespace root may be one of the users that are not mapped. */
static bool is_roots(const struct stat *st)
{
	bool root = st->st_uid == 0 ? geteuid() != 0 : !names_one_user(st->st_uid);
	return root && !(st->st_mode & (S_IWGRP | S_IWOTH));
}

/* Opens and checks the folder; returns its descriptor. `roots`: the folder may be root's. */
static int open_folder(const char *path, bool roots, char name[CKPTD_NAME_MAX + 1], struct err *err)
{
	char folder[4096];
	struct stat st;
	if (split(path, folder, sizeof folder, name, err) < 0)
		return -1;
	AUTO_CLOSE int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_fail(err, EXIT_LOST, "service: the folder %s is not there", folder);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return err_fail(err, EXIT_USAGE, "service: %s is a link or no folder: name a real one",
			folder);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_fail(err, EXIT_USAGE, "service: couldn't open the folder %s: %m", folder);
	bool good = roots && is_roots(&st);
	if (!good && st.st_uid != geteuid())
		return err_fail(err, EXIT_USAGE, "service: the folder %s belongs to user %u, not to %u",
			folder, (unsigned)st.st_uid, (unsigned)geteuid());
	if (!good && (st.st_mode & 0777) != 0700)
		return err_fail(err, EXIT_USAGE, "service: the folder %s has mode %04o: chmod 700 %s",
			folder, (unsigned)(st.st_mode & 07777), folder);
	return AUTO_TAKE_FD(fd);
}

static void address_of(int folder, const char *name, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un) { .sun_family = AF_UNIX };
	snprintf(address->sun_path, sizeof address->sun_path, "/proc/self/fd/%d/%s", folder, name);
}

/* The abstract name is the path itself. Returns the size of the address; 0 when the path is
 * relative or too long. */
static socklen_t abstract_address(const char *path, struct sockaddr_un *address)
{
	size_t length = strlen(path);
	if (path[0] != '/' || length >= sizeof address->sun_path)
		return 0;
	*address = (struct sockaddr_un) { .sun_family = AF_UNIX };
	memcpy(address->sun_path + 1, path, length);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* ---- the peer's user and groups ---- */

int ckptd_socket_check_peer(int fd, pid_t *pid, struct err *err)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return err_set(err, "service: couldn't ask who is at the other end: %m");
	*pid = peer.pid;
	if (peer.uid != geteuid())
		return err_fail(err, EXIT_USAGE,
			"service: process %d at the other end belongs to user %u, not to %u", (int)peer.pid,
			(unsigned)peer.uid, (unsigned)geteuid());
	return names_one_user(peer.uid)
		? 0
		: err_fail(err, EXIT_USAGE,
			"service: the process at the other end may be anybody's: this user namespace shows its "
			"own user and all whom it does not map as %u",
			(unsigned)peer.uid);
}

/* The groups of the process at the other end, as of the time when it began to listen. *groups is
 * malloc'ed and the caller's. Returns their number, -1 when it is not known. */
static int peer_groups(int fd, gid_t **groups)
{
	socklen_t size = 0;
	*groups = NULL;
	/* With too little room, the call fails and sets the size that is needed. */
	while (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, *groups, &size) < 0) {
		if (errno != ERANGE)
			return -1;
		free(*groups);
		*groups = malloc(size);
		if (!*groups)
			return -1;
	}
	return (int)(size / sizeof **groups);
}

static int own_groups(gid_t **groups)
{
	int count = getgroups(0, NULL);
	*groups = count < 0 ? NULL : calloc((size_t)count + 1, sizeof **groups);
	count = *groups ? getgroups(count, *groups) : -1;
	if (count >= 0)
		(*groups)[count++] = getegid();
	return count;
}

static bool holds(const gid_t *groups, int count, gid_t group)
{
	for (int i = 0; i < count; i++)
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): where there is a count */
		if (groups[i] == group)
			return true;
	return false;
}

int ckptd_socket_check_groups(int fd, struct err *err)
{
	struct ucred peer;
	socklen_t size = sizeof peer;
	AUTO_FREE gid_t *theirs = NULL;
	AUTO_FREE gid_t *ours = NULL;
	int their_count = peer_groups(fd, &theirs), own_count = own_groups(&ours);
	if (their_count < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return 0;
	for (int i = 0; i < own_count; i++)
		if (ours[i] != peer.gid && !holds(theirs, their_count, ours[i]))
			return err_fail(err, EXIT_LOST,
				"service: process %d lacks group %u, which this one has", (int)peer.pid,
				(unsigned)ours[i]);
	return 0;
}

/* Returns a connected descriptor, or -1 with errno set. */
static int connect_to(const struct sockaddr_un *address, socklen_t length)
{
	struct timeval limit = { .tv_sec = CONNECT_SECONDS };
	int fd = descriptors_own(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (connect(fd, (const struct sockaddr *)address, length) == 0)
		return fd;
	int why = errno;
	close(fd);
	errno = why;
	return -1;
}

static int connect_in(int folder, const char *name)
{
	struct sockaddr_un address;
	address_of(folder, name, &address);
	return connect_to(&address, sizeof address);
}

/* *why is set to the errno of connect(); 0 when it was not called. */
static int connect_by_path(const char *path, pid_t *pid, int *why, struct err *err)
{
	char name[CKPTD_NAME_MAX + 1];
	*why = 0;
	AUTO_CLOSE int folder = open_folder(path, true, name, err);
	if (folder < 0)
		return -1;
	AUTO_CLOSE int fd = connect_in(folder, name);
	*why = fd < 0 ? errno : 0;
	if (fd < 0)
		return err_fail(err, EXIT_LOST, "service: couldn't reach the one at %s: %m", path);
	if (ckptd_socket_check_peer(fd, pid, err) < 0)
		return -1;
	return AUTO_TAKE_FD(fd);
}

/* Called after connect_by_path failed, whose error it extends. *why is set as there, but stays if
 * the path has no abstract name. No other user can take the name from a service that holds it; so
 * if another user's process holds it, none of our services listens there. */
static int connect_by_name(const char *path, pid_t *pid, int *why, struct err *err)
{
	struct sockaddr_un address;
	struct err peer, first = *err;
	socklen_t length = abstract_address(path, &address);
	if (!length)
		return -1;
	AUTO_CLOSE int fd = connect_to(&address, length);
	if (fd < 0) {
		*why = errno;
		return err_fail(err, first.status, "%.500s; at its abstract name: %m", first.text);
	}
	if (ckptd_socket_check_peer(fd, pid, &peer) < 0) {
		*why = ECONNREFUSED;
		return err_fail(err, first.status, "%.400s; at its abstract name%.400s", first.text,
			strchr(peer.text, ':'));
	}
	return AUTO_TAKE_FD(fd);
}

int ckptd_socket_connect(const char *path, pid_t *pid, struct err *err)
{
	struct err own;
	int at_path, at_name;
	if (!err)
		err = &own;
	int fd = connect_by_path(path, pid, &at_path, err);
	if (fd >= 0)
		return fd;
	bool gone = at_path == 0 || at_path == ENOENT || at_path == ECONNREFUSED;
	at_name = at_path;
	fd = connect_by_name(path, pid, &at_name, err);
	errno = gone ? at_name : at_path;
	return fd;
}

/* ---- listening ---- */

/* Two services that start at once must see each other. */
static int lock(int folder, const char *path, struct err *err)
{
	struct deadline deadline = deadline_in(LOCK_SECONDS);
	while (flock(folder, LOCK_EX | LOCK_NB) < 0)
		if (!deadline_sleep(deadline, 0.02))
			return err_fail(err, EXIT_LOST, "service: couldn't lock the folder of %s: %m", path);
	return 0;
}

static int clear_name(int folder, const char *name, const char *path, struct err *err)
{
	struct stat st;
	if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_set(err, "service: couldn't look at %s: %m", path);
	if (!S_ISSOCK(st.st_mode))
		return err_fail(err, EXIT_USAGE,
			"service: %s is there and no socket: remove it, or name another", path);
	AUTO_CLOSE int fd = connect_in(folder, name);
	if (fd >= 0 || errno != ECONNREFUSED)
		return err_fail(err, EXIT_USAGE, "service: another one listens on %s", path);
	if (unlinkat(folder, name, 0) < 0)
		return err_set(err, "service: couldn't remove the dead socket %s: %m", path);
	return 0;
}

static void listen_by_name(struct ckptd_socket *listening, const char *path)
{
	struct sockaddr_un address;
	socklen_t length = abstract_address(path, &address);
	AUTO_CLOSE int fd =
		length ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
	if (!length)
		return;
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, BACKLOG) < 0) {
		log_warn("service: couldn't listen at the abstract name %s (%m): a container in which that "
				 "path is missing does not find this service",
			path);
		return;
	}
	listening->abstract = AUTO_TAKE_FD(fd);
}

static int make(struct ckptd_socket *listening, const char *path, struct err *err)
{
	struct sockaddr_un address;
	struct stat st;
	if (lock(listening->folder, path, err) < 0
		|| clear_name(listening->folder, listening->name, path, err) < 0)
		return -1;
	address_of(listening->folder, listening->name, &address);
	listening->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listening->fd < 0 || bind(listening->fd, (struct sockaddr *)&address, sizeof address) < 0
		|| listen(listening->fd, BACKLOG) < 0
		|| fstatat(listening->folder, listening->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(err, "service: couldn't listen on %s: %m", path);
	listening->inode = st.st_ino;
	flock(listening->folder, LOCK_UN);
	return 0;
}

int ckptd_socket_listen(struct ckptd_socket *listening, const char *path, struct err *err)
{
	*listening = (struct ckptd_socket) { .fd = -1, .abstract = -1 };
	listening->folder = open_folder(path, false, listening->name, err);
	if (listening->folder < 0)
		return -1;
	if (make(listening, path, err) == 0) {
		listen_by_name(listening, path);
		return 0;
	}
	ckptd_socket_close(listening);
	return -1;
}

int ckptd_socket_take(struct ckptd_socket *listening, const char *path, int bound, struct err *err)
{
	struct stat st;
	*listening = (struct ckptd_socket) { .fd = bound, .abstract = -1 };
	listening->folder = open_folder(path, true, listening->name, err);
	if (listening->folder < 0)
		return -1;
	/* The abstract name comes first: the job's steps begin once a process listens at the path. */
	listen_by_name(listening, path);
	/* From here on the kernel gives connecting clients this process as their peer. */
	if (fcntl(bound, F_SETFL, O_NONBLOCK) == 0 && listen(bound, BACKLOG) == 0
		&& fstatat(listening->folder, listening->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		listening->inode = st.st_ino;
		return 0;
	}
	err_fail(err, EXIT_USAGE,
		"service: couldn't listen on %s, which --bound says is the standard input: %m", path);
	ckptd_socket_close(listening);
	return -1;
}

bool ckptd_socket_is_there(const struct ckptd_socket *listening)
{
	struct stat st;
	return fstatat(listening->folder, listening->name, &st, AT_SYMLINK_NOFOLLOW) == 0
		&& st.st_ino == listening->inode;
}

void ckptd_socket_close(struct ckptd_socket *listening)
{
	if (listening->inode && ckptd_socket_is_there(listening))
		unlinkat(listening->folder, listening->name, 0);
	if (listening->fd >= 0)
		close(listening->fd);
	if (listening->folder >= 0)
		close(listening->folder);
	/* The abstract socket is closed only when the process ends: while one of its threads still
	 * writes, clients can see that it lives. */
	*listening = (struct ckptd_socket) { .fd = -1, .abstract = -1, .folder = -1 };
}
