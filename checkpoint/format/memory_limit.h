/* SPDX-License-Identifier: Apache-2.0 */
/* How much more memory a process may use: the least that its cgroups (v1 or v2) and the machine
 * leave. */
#ifndef MUSTER_MEMORY_LIMIT_H
#define MUSTER_MEMORY_LIMIT_H

#include <stddef.h>

/* In bytes; 0: unknown. `root` is prepended to every path that is read: "" in real use, a folder in
 * tests. The page cache counts as free, since the kernel reclaims it. */
size_t memory_limit_available(const char *root);

#endif
