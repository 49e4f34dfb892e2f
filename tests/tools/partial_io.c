/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's calls on sockets, with less done at once. The memory of a descriptor is a few
 * counters that races only blur. */
#define _GNU_SOURCE
#include "tests/tools/partial_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/tools/our_calls.h"

#define FDS 4096
#define BYTE_BY_BYTE 48 /* bytes of a connection each way: more than the head of any message */
#define VECTORS 64

_Thread_local bool partial_io_here;
bool partial_io_everywhere;

enum way { SENT, RECEIVED, ACCEPTED, WAYS };

/* Per descriptor: calls so far, and bytes that they moved. */
static struct {
	unsigned calls[WAYS], bytes[WAYS];
	bool late;
} memory[FDS];

/* ---- whose call it is ---- */

static bool is_concerned(const void *caller)
{
#ifdef OUR_FOLDERS
	return our_call(caller);
#else
	(void)caller;
	return partial_io_here || partial_io_everywhere;
#endif
}

static bool is_stream(int fd)
{
	int saved = errno, type = 0;
	bool stream = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t) { sizeof type }) == 0
		&& type == SOCK_STREAM;
	errno = saved;
	return stream;
}

/* Slurm's server of PMI2 takes no part of a message for one. */
static bool is_pmi(int fd)
{
	const char *pmi = getenv("PMI_FD");
	return pmi && strtol(pmi, NULL, 10) == fd;
}

/* A descriptor that is no socket asks nobody: a signal's handler may write to one. */
#define CONCERNED(fd) \
	((unsigned)(fd) < FDS && is_stream(fd) && !is_pmi(fd) \
		&& is_concerned(__builtin_return_address(0)))

static bool only_late(void)
{
	const char *mode = getenv("PARTIAL_IO");
	return mode && strcmp(mode, "late") == 0;
}

static bool may_wait(int fd, int flags)
{
	return !(flags & MSG_DONTWAIT) && !(fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* ---- less at once ---- */

/* Whether this call finds nothing to do: the first, the third, and so on. The caller then polls,
 * and the next call does something. */
static bool finds_nothing(int fd, enum way way, int flags)
{
	unsigned call = __atomic_fetch_add(&memory[fd].calls[way], 1, __ATOMIC_RELAXED);
	if (only_late() ? !(way == SENT && memory[fd].late && call == 0) : call % 2 == 1)
		return false;
	if (may_wait(fd, flags) || (flags & MSG_PEEK))
		return false;
	errno = EAGAIN;
	return true;
}

/* How much of so much it does at most. */
static size_t part_of(int fd, enum way way, size_t size, int flags)
{
	unsigned moved = memory[fd].bytes[way];
	if (size <= 1 || only_late() || (flags & (MSG_WAITALL | MSG_PEEK)))
		return size;
	if (moved < BYTE_BY_BYTE)
		return 1;
	return 1 + (moved * 2654435761u >> 4) % size;
}

static ssize_t count(int fd, enum way way, ssize_t moved)
{
	if (moved > 0)
		__atomic_fetch_add(&memory[fd].bytes[way], (unsigned)moved, __ATOMIC_RELAXED);
	return moved;
}

/* The same message, of which only a part is moved. What travels beside it does so with its first
 * byte. */
static struct msghdr part_of_message(int fd, enum way way, const struct msghdr *message,
	struct iovec parts[VECTORS], int flags)
{
	struct msghdr part = *message;
	size_t size = 0, used = 0;
	if (message->msg_iovlen > VECTORS)
		return part;
	for (size_t i = 0; i < message->msg_iovlen; i++)
		size += message->msg_iov[i].iov_len;
	size = part_of(fd, way, size, flags);
	for (; used < message->msg_iovlen && (size > 0 || used == 0); used++) {
		parts[used] = message->msg_iov[used];
		parts[used].iov_len = parts[used].iov_len < size ? parts[used].iov_len : size;
		size -= parts[used].iov_len;
	}
	part.msg_iov = parts;
	part.msg_iovlen = used;
	return part;
}

static void forget(int fd)
{
	if ((unsigned)fd < FDS)
		memset(&memory[fd], 0, sizeof memory[fd]);
}

/* ---- the calls; each asks the kernel itself, so that no other library is called in between ----
 */

int socket(int domain, int type, int protocol)
{
	int fd = (int)syscall(SYS_socket, domain, type, protocol);
	forget(fd);
	return fd;
}

int accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	if (CONCERNED(fd) && finds_nothing(fd, ACCEPTED, 0))
		return -1;
	int got = (int)syscall(SYS_accept4, fd, address, size, flags);
	forget(got);
	return got;
}

int accept(int fd, struct sockaddr *address, socklen_t *size)
{
	if (CONCERNED(fd) && finds_nothing(fd, ACCEPTED, 0))
		return -1;
	int got = (int)syscall(SYS_accept4, fd, address, size, 0);
	forget(got);
	return got;
}

int connect(int fd, const struct sockaddr *address, socklen_t size)
{
	bool concerned = CONCERNED(fd) && address->sa_family != AF_UNIX && !may_wait(fd, 0);
	int rc = (int)syscall(SYS_connect, fd, address, size);
	if (!concerned || rc < 0)
		return rc;
	memory[fd].late = true;
	errno = EINPROGRESS;
	return -1;
}

ssize_t send(int fd, const void *bytes, size_t size, int flags)
{
	if (!CONCERNED(fd))
		return syscall(SYS_sendto, fd, bytes, size, flags, NULL, 0);
	if (finds_nothing(fd, SENT, flags))
		return -1;
	return count(fd, SENT,
		syscall(SYS_sendto, fd, bytes, part_of(fd, SENT, size, flags), flags, NULL, 0));
}

ssize_t write(int fd, const void *bytes, size_t size)
{
	if (!CONCERNED(fd))
		return syscall(SYS_write, fd, bytes, size);
	if (finds_nothing(fd, SENT, 0))
		return -1;
	return count(fd, SENT, syscall(SYS_write, fd, bytes, part_of(fd, SENT, size, 0)));
}

static ssize_t send_part(int fd, const struct msghdr *message, int flags)
{
	struct iovec parts[VECTORS];
	if (finds_nothing(fd, SENT, flags))
		return -1;
	struct msghdr part = part_of_message(fd, SENT, message, parts, flags);
	return count(fd, SENT, syscall(SYS_sendmsg, fd, &part, flags));
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	return CONCERNED(fd) ? send_part(fd, message, flags) : syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t writev(int fd, const struct iovec *vectors, int used)
{
	const struct msghdr message = { .msg_iov = (struct iovec *)vectors,
		.msg_iovlen = (size_t)used };
	return CONCERNED(fd) ? send_part(fd, &message, 0) : syscall(SYS_writev, fd, vectors, used);
}

ssize_t recv(int fd, void *bytes, size_t size, int flags)
{
	if (!CONCERNED(fd))
		return syscall(SYS_recvfrom, fd, bytes, size, flags, NULL, NULL);
	if (finds_nothing(fd, RECEIVED, flags))
		return -1;
	return count(fd, RECEIVED,
		syscall(SYS_recvfrom, fd, bytes, part_of(fd, RECEIVED, size, flags), flags, NULL, NULL));
}

ssize_t read(int fd, void *bytes, size_t size)
{
	if (!CONCERNED(fd))
		return syscall(SYS_read, fd, bytes, size);
	if (finds_nothing(fd, RECEIVED, 0))
		return -1;
	return count(fd, RECEIVED, syscall(SYS_read, fd, bytes, part_of(fd, RECEIVED, size, 0)));
}

static ssize_t receive_part(int fd, struct msghdr *message, int flags)
{
	struct iovec parts[VECTORS];
	if (finds_nothing(fd, RECEIVED, flags))
		return -1;
	struct msghdr part = part_of_message(fd, RECEIVED, message, parts, flags);
	ssize_t got = count(fd, RECEIVED, syscall(SYS_recvmsg, fd, &part, flags));
	message->msg_namelen = part.msg_namelen;
	message->msg_controllen = part.msg_controllen;
	message->msg_flags = part.msg_flags;
	return got;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	return CONCERNED(fd) ? receive_part(fd, message, flags)
						 : syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t readv(int fd, const struct iovec *vectors, int used)
{
	struct msghdr message = { .msg_iov = (struct iovec *)vectors, .msg_iovlen = (size_t)used };
	return CONCERNED(fd) ? receive_part(fd, &message, 0) : syscall(SYS_readv, fd, vectors, used);
}
