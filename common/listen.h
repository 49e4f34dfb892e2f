/* SPDX-License-Identifier: Apache-2.0 */
/* A socket on all addresses of the node, which listens if it is one of TCP. */
#ifndef MUSTER_LISTEN_H
#define MUSTER_LISTEN_H

/* Takes `port` (0: one that the kernel chooses), for IPv6 and IPv4, or IPv4 alone where there is no
 * IPv6. `type` is SOCK_STREAM or SOCK_DGRAM. *got is the port. Returns the descriptor, or -1 with
 * errno. */
int socket_any(int type, int port, int *got);

/* The same for SOCK_STREAM. */
int listen_any(int port, int *got);

#endif
