/* SPDX-License-Identifier: Apache-2.0 */
/* A non-blocking listening socket, and how connections are accepted from it. When the process or
 * the system is out of descriptors or memory, the socket rests for a moment, since poll() would
 * report the same waiting connection again and again. The kernel keeps that connection
 * meanwhile. */
#ifndef MUSTER_ACCEPTOR_H
#define MUSTER_ACCEPTOR_H

#include <stdbool.h>

/* A value; { .fd = -1 } has no socket. */
struct acceptor {
	int fd;
	double rests_until; /* clock_now() */
};

/* Closes the connection that is missed least, to free its descriptor. False: there is none to
 * close. */
typedef bool acceptor_make_room(void *arg);

/* Accepts the next connection, as a non-blocking descriptor; -1: none, or none now. `make_room` is
 * called when descriptors or memory run out; NULL: nothing can be closed. */
int acceptor_take(struct acceptor *acceptor, acceptor_make_room *make_room, void *arg);

/* The descriptor to poll for POLLIN. While the socket rests: -1, and *seconds is lowered to the
 * time that is left. */
int acceptor_poll(const struct acceptor *acceptor, double *seconds);

#endif
