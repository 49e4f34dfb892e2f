/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as one line of text that people and JSON can read. */
#ifndef MUSTER_ONE_LINE_H
#define MUSTER_ONE_LINE_H

#include <stddef.h>

/* Keeps what is printable UTF-8, and writes the rest as C does: \n, \t, \r, \\, and \xNN for other
 * control characters and for each byte that is not UTF-8. malloc'ed, the caller's; NULL when out of
 * memory. */
char *one_line(const char *bytes, size_t size);

#endif
