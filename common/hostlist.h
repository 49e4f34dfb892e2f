/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's compressed host lists, such as "n[1-4,07],m2". Numbers keep their leading zeros. */
#ifndef MUSTER_HOSTLIST_H
#define MUSTER_HOSTLIST_H

#include <stddef.h>

/* The name at place `index`, from 0. Returns -1 if the list is malformed up to there, is shorter,
 * or the name does not fit into `size` bytes. */
int hostlist_nth(const char *list, long index, char *out, size_t size);

/* The first place of a name, from 0; -1 if it is not there, or the list is malformed up to
 * there. */
long hostlist_find(const char *list, const char *name);

#endif
