/* SPDX-License-Identifier: Apache-2.0 */
/* The limit of open files and connections: many ranks need more than the default. */
#ifndef MUSTER_DESCRIPTORS_H
#define MUSTER_DESCRIPTORS_H

#include <stddef.h>

/* Raises the soft limit to the hard limit. A main() calls this first. */
void descriptors_raise(void);

/* How many connections may be open at once: three quarters of the limit, so that some descriptors
 * are left for files. */
size_t descriptors_for_connections(void);

#endif
