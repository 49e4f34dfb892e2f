/* SPDX-License-Identifier: Apache-2.0 */
/* Text from outside as a terminal may get it: what a directory holds can't move its cursor, change
 * its colours or make it answer. */
#ifndef MUSTER_PLAIN_H
#define MUSTER_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Copies the printable characters of the locale (LC_CTYPE) that fit into so many columns, with a
 * "?" in the place of each other byte or character. Returns the columns that they take. */
int plain_fit(const char *text, int columns, char *out, size_t size);

/* Whether the locale's characters are those of Unicode. */
bool plain_is_unicode(void);

#endif
