/* SPDX-License-Identifier: Apache-2.0 */
/* Parses addresses of services and sets up TCP sockets, for both ends of a connection between
 * services. */
#include "config.h"
#include "checkpoint/protocol/ckptd_tcp.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/hash.h"

int ckptd_address_parse(const char *text, struct ckptd_address *address, struct err *err)
{
	struct hash128 ignored;
	const char *secret = strrchr(text, ':'), *port = secret;
	while (port && port > text && *--port != ':')
		;
	char *end = NULL;
	long number = port && *port == ':' ? strtol(port + 1, &end, 10) : 0;
	if (end != secret || number < 1 || number > 65535 || port == text
		|| (size_t)(port - text) >= CKPTD_HOST_SIZE || hash_parse(secret + 1, &ignored) < 0)
		return err_fail(err, EXIT_USAGE,
			"service: the address of part 0's service is not HOST:PORT:SECRET");
	snprintf(address->host, sizeof address->host, "%.*s", (int)(port - text), text);
	snprintf(address->secret, sizeof address->secret, "%s", secret + 1);
	address->port = (int)number;
	return 0;
}

int ckptd_tcp_address(const char *host, int port, struct sockaddr_storage *address, socklen_t *size,
	struct err *err)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM };
	struct addrinfo *found;
	char digits[16];
	snprintf(digits, sizeof digits, "%d", port);
	if (getaddrinfo(host, digits, &hints, &found) != 0)
		return err_fail(err, EXIT_USAGE, "service: %s is no address in digits", host);
	memcpy(address, found->ai_addr, found->ai_addrlen);
	*size = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

void ckptd_tcp_keep(int fd)
{
	const int on = 1, idle = 10, interval = 5, count = 3, unanswered = 25000;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof unanswered);
}
