/* SPDX-License-Identifier: Apache-2.0 */
/* The notice that this run must stop: signals set a flag and do nothing else. */
#ifndef MUSTER_NOTICE_H
#define MUSTER_NOTICE_H

#include "common/err.h"

/* SIGTERM, SIGUSR1, SIGUSR2 and SIGINT set the flag from now on, as often as they come. They stay
 * blocked in the calling thread and in all that it starts, so call this before any other thread
 * exists. A second call changes nothing. */
int notice_take(struct err *err);

/* The first signal that came, 0 for none. */
int notice_signal(void);

/* A descriptor that is readable (poll, select, epoll) once a notice has come; -1 before
 * notice_take. It is not the caller's: not to be read or closed. */
int notice_fd(void);

/* "SIGTERM", "SIGUSR1", …; for what is no notice "a signal". */
const char *notice_name(int signal);

#endif
