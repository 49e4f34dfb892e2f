/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of services: "HOST:PORT:SECRET". The host is numeric, so that no name server can delay
 * a connection. */
#ifndef MUSTER_CKPTD_TCP_H
#define MUSTER_CKPTD_TCP_H

#include <sys/socket.h>

#include "common/err.h"

#define CKPTD_HOST_SIZE 64
#define CKPTD_ADDRESS_SIZE (CKPTD_HOST_SIZE + 48)

struct ckptd_address {
	char host[CKPTD_HOST_SIZE];
	int port;
	char secret[33];
};

/* Splits the text; an IPv6 address is written without brackets. 0, or -1 with status EXIT_USAGE. */
int ckptd_address_parse(const char *text, struct ckptd_address *address, struct err *err);

/* Converts a numeric host and a port to a socket address; status EXIT_USAGE for any other host. */
int ckptd_tcp_address(const char *host, int port, struct sockaddr_storage *address, socklen_t *size,
	struct err *err);

/* Sets keep-alive options on a socket, so that a lost node is noticed within half a minute. */
void ckptd_tcp_keep(int fd);

#endif
