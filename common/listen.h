/* SPDX-License-Identifier: Apache-2.0 */
/* A socket on all addresses of the node, which listens if it is one of TCP; and what connections
 * between ranks have in common. */
#ifndef MUSTER_LISTEN_H
#define MUSTER_LISTEN_H

/* Takes `port` (0: one that the kernel chooses), for IPv6 and IPv4, or IPv4 alone where there is no
 * IPv6. `type` is SOCK_STREAM or SOCK_DGRAM. *got is the port. Returns the descriptor, or -1 with
 * errno. */
int socket_any(int type, int port, int *got);

/* The same for SOCK_STREAM. */
int listen_any(int port, int *got);

/* For a TCP connection between ranks. A small frame does not wait until the one before it is
 * acknowledged. And the kernel asks a silent peer every 10 s: where that one's node has lost power
 * and is back, the answer is a reset. No answer at all is no error for 20 minutes. */
void socket_between_ranks(int fd);

#endif
