/* SPDX-License-Identifier: Apache-2.0 */
/* A network that is never kind: sockets whose calls do as little at once as POSIX allows. A
 * connection that is there at once is reported as under way, every other call on a non-blocking
 * socket answers EAGAIN although it could do something, and the others move one byte at the
 * beginning of a connection and an arbitrary part of what is asked for later.
 *
 * Preloaded (LD_PRELOAD, or /etc/ld.so.preload), it does so to calls of this build's programs and
 * libraries alone, whatever process they are in. PARTIAL_IO=late leaves it at the
 * first: connections that are late. Linked into a test, it does so to threads that ask for it. */
#ifndef MUSTER_TESTS_PARTIAL_IO_H
#define MUSTER_TESTS_PARTIAL_IO_H

#include <stdbool.h>

/* Whether calls of this thread are concerned, in a program that it is linked into. */
extern _Thread_local bool partial_io_here;

/* Whether those of all its threads are. */
extern bool partial_io_everywhere;

#endif
