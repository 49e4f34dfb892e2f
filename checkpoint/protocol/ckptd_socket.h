/* SPDX-License-Identifier: Apache-2.0 */
/* The service's Unix socket: a name in a folder in which nobody but its user, or root, can put
 * anything. And its abstract one, whose name is that path, for who has not this folder in his mount
 * namespace: in a container, which mostly shares its host's network namespace, where such names
 * are. Anybody may take one, so only the kernel's word on who listens counts. */
#ifndef MUSTER_CKPTD_SOCKET_H
#define MUSTER_CKPTD_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/err.h"

#define CKPTD_NAME_MAX 64 /* bytes of the socket's name in its folder */

struct ckptd_socket {
	int fd;       /* listens; -1: none */
	int abstract; /* listens; -1: none, since the path is relative, too long, or the name was taken
				   */
	int folder;
	char name[CKPTD_NAME_MAX + 1];
	ino_t inode;
};

/* Both: where the abstract name can't be had, a line says so, and the path is all there is. */

/* Makes the socket and listens. Its folder must be a real directory of the caller with mode 0700. A
 * socket on which nobody listens is replaced; one of a living service, and anything else of that
 * name, is refused (EXIT_USAGE). */
int ckptd_socket_listen(struct ckptd_socket *listening, const char *path, struct err *err);

/* Listens on the socket `bound`, which root has made at `path` for us, in a folder of root's in
 * which nobody else can put anything. Takes the descriptor over. */
int ckptd_socket_take(struct ckptd_socket *listening, const char *path, int bound, struct err *err);

/* Whether a client still finds it under its path. */
bool ckptd_socket_is_there(const struct ckptd_socket *listening);

/* Removes the socket, if it is still this one, and closes. */
void ckptd_socket_close(struct ckptd_socket *listening);

/* Connects to the service at `path`, or else at its abstract name, and returns the descriptor; *pid
 * is its process, 0 where that is in no pid namespace that can be seen from here. The folder is one
 * for either of the above, and the service must run as the caller's user. A socket that is not
 * there, or on which nobody listens: EXIT_LOST. errno is ECONNREFUSED where it is certain that
 * nobody listens any more, at neither. */
int ckptd_socket_connect(const char *path, pid_t *pid, struct err *err);

/* Whether the service to which `fd` is connected has all groups of this process; else names one
 * that it lacks (EXIT_LOST). Where the kernel does not tell, it has. */
int ckptd_socket_check_groups(int fd, struct err *err);

/* Whether the process at the other end of a Unix socket runs as our user; else says who it is. Both
 * are numbers of this process's user namespace. */
int ckptd_socket_check_peer(int fd, pid_t *pid, struct err *err);

#endif
