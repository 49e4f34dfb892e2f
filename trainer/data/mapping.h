/* SPDX-License-Identifier: Apache-2.0 */
/* A regular file, mapped for reading. */
#ifndef MUSTER_MAPPING_H
#define MUSTER_MAPPING_H

#include <stddef.h>

#include "common/err.h"

struct mapping {
	char *path; /* a copy, for messages */
	const unsigned char *bytes;
	size_t size; /* > 0 */
};

/* Maps the whole file. A missing, empty or not regular file: status EXIT_DATA.
 *
 * If a mapped file is cut short, or its disk fails, reading the lost pages raises SIGBUS: no check
 * can come before each access. The process dies of that signal, which counts as a fault that may
 * pass, and the next attempt fails the size check when it opens the file. */
int mapping_open(struct mapping *mapping, const char *path, struct err *err);

/* Unmaps; accepts a zeroed mapping. */
void mapping_close(struct mapping *mapping);

#endif
