/* SPDX-License-Identifier: Apache-2.0 */
/* Whether rank 0 can be reached from a node: it listens and says a word that only this run knows,
 * the others come and hear it. */
#ifndef MUSTER_DOCTOR_WAY_H
#define MUSTER_DOCTOR_WAY_H

#include "common/err.h"

struct way; /* rank 0's end */

/* Listens on `port`, or, where that is not above 0 or can't be had, on one that the kernel chooses;
 * *got is the one. `word`, of at most 60 characters, is said to whoever connects, by a thread of
 * its own. NULL on error. */
struct way *way_open(int port, const char *word, int *got, struct err *err);

/* NULL is allowed. */
void way_close(struct way *way);

/* Connects to host and port and hears the word, within `seconds`. An error's text says what went
 * wrong, without a prefix. */
int way_try(const char *host, int port, const char *word, double seconds, struct err *err);

#endif
