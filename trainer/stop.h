/* SPDX-License-Identifier: Apache-2.0 */
/* The notice that this run must stop: signals set a flag and do nothing else. */
#ifndef MUSTER_STOP_H
#define MUSTER_STOP_H

#include "common/err.h"

/* SIGTERM, SIGUSR2 and SIGINT set the flag from now on, as often as they come. They stay blocked in the calling thread and
 * in all that it starts, so call this before any other thread exists.
 * SIGPIPE is ignored, since a reader of our output that went away must not end the training. */
int stop_install(struct err *err);

/* The first signal that came, 0 for none. */
int stop_signal(void);

/* "SIGTERM", "SIGUSR2", "SIGINT"; for anything else "a signal". */
const char *stop_signal_name(int signal);

#endif
