/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a process may still take: what its cgroups (v1 or v2) and the machine leave. */
#ifndef MUSTER_MEMORY_LIMIT_H
#define MUSTER_MEMORY_LIMIT_H

#include <stddef.h>

/* In bytes; 0: not known. `root` stands in front of every path that is read: "" in real use, a
 * folder in tests. Memory that only holds cached files counts as free, since the kernel gives it
 * up. */
size_t memory_limit_available(const char *root);

#endif
