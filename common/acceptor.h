/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket that does not block, and the connections that wait at it. Where the process
 * can have no more descriptors it is left alone for a moment, since poll() would tell of what waits
 * again and again; the kernel keeps that meanwhile. */
#ifndef MUSTER_ACCEPTOR_H
#define MUSTER_ACCEPTOR_H

#include <stdbool.h>

/* A value; { .fd = -1 } has none. */
struct acceptor {
	int fd;
	double rests_until; /* clock_now() */
};

/* Closes the connection that can best be missed, for another one; false: there is none. */
typedef bool acceptor_make_room(void *arg);

/* The next connection, which does not block; -1: none, or none now. `make_room` is asked where
 * there is no descriptor for it; NULL: nothing can be missed. */
int acceptor_take(struct acceptor *acceptor, acceptor_make_room *make_room, void *arg);

/* The descriptor to poll for POLLIN; -1 while it rests, and then *seconds is at most the time that
 * is left of that. */
int acceptor_poll(const struct acceptor *acceptor, double *seconds);

#endif
