/* SPDX-License-Identifier: Apache-2.0 */
/* Listens as PyTorch's store does, so that what fails there fails here. */
#include "config.h"

#include "common/listen.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/auto.h"
#include "common/descriptors.h"

#define PROBE_SECONDS 10
#define PROBES 120

static int bind_any(int fd, bool six, int port)
{
	const struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	const struct sockaddr_in b = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	return six ? bind(fd, (const struct sockaddr *)&a, sizeof a)
			   : bind(fd, (const struct sockaddr *)&b, sizeof b);
}

int socket_any(int type, int port, int *got)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof address;
	AUTO_CLOSE int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
	bool six = fd >= 0;
	if (!six)
		fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	/* For datagrams it would share the port with a later socket. */
	if (type == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int) { 1 }, sizeof(int));
	/* With net.ipv6.bindv6only = 1 the socket would not take IPv4 connections. */
	if (six)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int) { 0 }, sizeof(int));
	if (bind_any(fd, six, port) < 0 || (type == SOCK_STREAM && listen(fd, SOMAXCONN) < 0)
		|| getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		return -1;
	/* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): getsockname fills the address */
	*got = ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port
					 : ((struct sockaddr_in *)&address)->sin_port);
	descriptors_own(fd);
	return AUTO_TAKE_FD(fd);
}

int listen_any(int port, int *got)
{
	return socket_any(SOCK_STREAM, port, got);
}

void socket_between_ranks(int fd)
{
	const int on = 1, seconds = PROBE_SECONDS, probes = PROBES;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}
