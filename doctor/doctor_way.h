/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a node can be reached: it listens and sends a word that only this run knows; others
 * connect and read it. */
#ifndef MUSTER_DOCTOR_WAY_H
#define MUSTER_DOCTOR_WAY_H

#include "common/err.h"

struct way; /* the listening end */

/* Listens on `port`, or on one that the kernel chooses if `port` is not above 0 or not free; *got
 * is the port. A thread sends `word`, of at most 60 characters, to whatever connects. NULL on
 * error. */
struct way *way_open(int port, const char *word, int *got, struct err *err);

/* NULL is allowed. */
void way_close(struct way *way);

/* Connects to host and port and reads the word, within `seconds`. The error's text has no
 * prefix. */
int way_try(const char *host, int port, const char *word, double seconds, struct err *err);

#endif
