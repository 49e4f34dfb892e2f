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

/* Maps the whole file. What is missing, empty or not a regular file: status EXIT_DATA.
 *
 * A file that is cut short, or a disk that fails, while it is mapped raises SIGBUS in whoever reads
 * the lost pages: no check can come before each access. The process dies by that signal, which
 * counts as a fault that may pass, and the next attempt meets the size check at opening. */
int mapping_open(struct mapping *mapping, const char *path, struct err *err);

/* Unmaps; a zeroed mapping is allowed. */
void mapping_close(struct mapping *mapping);

#endif
