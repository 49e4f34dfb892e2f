/* SPDX-License-Identifier: Apache-2.0 */
/* A test program that uses libmuster as a world of one. Include after cmocka.h. */
#ifndef MUSTER_ALONE_FIXTURE_H
#define MUSTER_ALONE_FIXTURE_H

#include "lib/muster.h"

extern struct muster *muster;

/* Opens it: no launcher's variables, and this build's service. -1: it can't. */
int alone_setup(void);

void assert_ok(int status);

/* It is the wanted status, and muster_error has the words. */
void assert_refused(int status, int wanted, const char *words);

#endif
