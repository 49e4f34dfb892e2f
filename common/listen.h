/* SPDX-License-Identifier: Apache-2.0 */
/* A listening TCP socket on all addresses of the node. */
#ifndef MUSTER_LISTEN_H
#define MUSTER_LISTEN_H

/* Listens on `port` (0: one that the kernel chooses), for IPv6 and IPv4, or IPv4 alone where there
 * is no IPv6. *got is the port. Returns the descriptor, or -1 with errno. */
int listen_any(int port, int *got);

#endif
