/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of services: "HOST:PORT:SECRET", the host in digits, so that nothing waits for a name
 * server. */
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

/* Takes the text apart; IPv6 addresses stand in it as they are. Status EXIT_USAGE. */
int ckptd_address_parse(const char *text, struct ckptd_address *address, struct err *err);

/* The socket address of a host in digits; status EXIT_USAGE for any other. */
int ckptd_tcp_address(const char *host, int port, struct sockaddr_storage *address, socklen_t *size,
	struct err *err);

/* Sets a socket up so that a node that is gone is noticed within half a minute. */
void ckptd_tcp_keep(int fd);

#endif
