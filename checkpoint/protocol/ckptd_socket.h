/* SPDX-License-Identifier: Apache-2.0 */
/* The service's Unix socket, at a path in a folder in which only its user or root can put anything.
 * It also listens at an abstract name, equal to that path, for clients whose mount namespace lacks
 * the folder: in a container, which mostly shares the host's network namespace, to which abstract
 * names belong. Any user may take an abstract name, so clients trust only what the kernel says
 * about the listening process. */
#ifndef MUSTER_CKPTD_SOCKET_H
#define MUSTER_CKPTD_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define CKPTD_NAME_MAX 64 /* maximum bytes of the socket's name in its folder */

struct ckptd_socket {
	int fd;       /* listening descriptor; -1: none */
	int abstract; /* the same; -1: none, since the path is relative or too long, or the name was
					 taken */
	int folder;
	char name[CKPTD_NAME_MAX + 1];
	ino_t inode;
};

/* ckptd_socket_listen and ckptd_socket_take: when the abstract name is not available, that is
 * logged, and only the path is used. */

/* Creates the socket and listens. Its folder must be a real directory of the caller's user with
 * mode 0700. A socket on which no process listens is replaced; that of a living service, or any
 * other file of that name, is refused (EXIT_USAGE). */
int ckptd_socket_listen(struct ckptd_socket *listening, const char *path, struct err *err);

/* Listens on the socket `bound`, which root has created for us at `path`, in a folder of root's in
 * which no other user can put anything. Takes ownership of the descriptor. */
int ckptd_socket_take(struct ckptd_socket *listening, const char *path, int bound, struct err *err);

/* Whether the path still leads to this socket. */
bool ckptd_socket_is_there(const struct ckptd_socket *listening);

/* Removes the socket from its folder, if it is still this one, and closes it. */
void ckptd_socket_close(struct ckptd_socket *listening);

/* Connects to the service at `path`, or else at its abstract name. Returns the descriptor; *pid is
 * its process, 0 when that is in a pid namespace that can't be seen from here. The folder must be
 * as for one of the two functions above, and the service must run as the caller's user. -1 with
 * EXIT_LOST when there is no socket, or no process listens on it. errno is ECONNREFUSED when it is
 * certain that no process listens any more, neither at the path nor at the name. */
int ckptd_socket_connect(const char *path, pid_t *pid, struct err *err);

/* 0 when the service to which `fd` is connected has all groups of this process; else -1 with
 * EXIT_LOST, and err names a group that it lacks. When the kernel can't tell, the result is 0. */
int ckptd_socket_check_groups(int fd, struct err *err);

/* 0 when the process at the other end of a Unix socket runs as our user; else -1, and err says
 * whose it is. User ids are those of this process's user namespace. */
int ckptd_socket_check_peer(int fd, pid_t *pid, struct err *err);

#endif
