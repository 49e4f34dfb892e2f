/* SPDX-License-Identifier: Apache-2.0 */
/* Open files and connections: how many there may be, and which of them a forked process must not
 * keep. */
#ifndef MUSTER_DESCRIPTORS_H
#define MUSTER_DESCRIPTORS_H

#include <stddef.h>

/* Raises the soft limit to the hard limit. A main() calls this first. */
void descriptors_raise(void);

/* How many connections may be open at once: three quarters of the limit, so that some descriptors
 * are left for files. */
size_t descriptors_for_connections(void);

/* Marks a descriptor of this process's own: a connection, whose other end has to see at once when
 * this process is gone, memory or a lock. Returns it; -1 is allowed. The mark ends when the
 * descriptor is closed. */
int descriptors_own(int fd);

/* From now on every process that this one forks, such as a worker of Python's multiprocessing,
 * closes the marked descriptors. Further calls have no effect. */
void descriptors_close_in_children(void);

#endif
