/* SPDX-License-Identifier: Apache-2.0 */
/* How many files, and connections, a process may have open. */
#ifndef MUSTER_DESCRIPTORS_H
#define MUSTER_DESCRIPTORS_H

#include <stddef.h>

/* Raises the limit to the most that this process may have: the first thing that a main does. */
void descriptors_raise(void);

/* How many connections may be open at once, so that some are left for files. */
size_t descriptors_for_connections(void);

#endif
