/* SPDX-License-Identifier: Apache-2.0 */
/* Resting is timed, since the kernel does not tell when a descriptor becomes free again. */
#include "config.h"

#include "common/acceptor.h"

#include <errno.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/descriptors.h"

#define REST_SECONDS 0.1

static bool is_lack(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

int acceptor_take(struct acceptor *acceptor, acceptor_make_room *make_room, void *arg)
{
	if (acceptor->fd < 0 || clock_now() < acceptor->rests_until)
		return -1;
	for (;;) {
		int fd = descriptors_own(accept4(acceptor->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		if (fd >= 0 || !is_lack(errno))
			return fd;
		if (!make_room || !make_room(arg))
			break;
	}
	acceptor->rests_until = clock_now() + REST_SECONDS;
	return -1;
}

int acceptor_poll(const struct acceptor *acceptor, double *seconds)
{
	double left = acceptor->rests_until - clock_now();
	if (left <= 0)
		return acceptor->fd;
	if (left < *seconds)
		*seconds = left;
	return -1;
}
