/* SPDX-License-Identifier: Apache-2.0 */
/* The notice that this run must stop: a signal, which sets a flag and does nothing else, or the
 * job's time limit (checkpoint/attempt/folder.h), or the end of the launcher on this node
 * (launch/pmix_client.c), or a cloud that takes the node away (launch/spot_watch.h). */
#ifndef MUSTER_NOTICE_H
#define MUSTER_NOTICE_H

#include <stdbool.h>

#include "common/err.h"

/* In the place of a signal. */
#define NOTICE_TIME_LIMIT 1000
#define NOTICE_LAUNCHER 1001 /* slurmstepd, or mpirun's daemon, has ended on this node */
#define NOTICE_SPOT 1002     /* a cloud is about to take this node away */

/* From now on SIGTERM, SIGUSR1, SIGUSR2 and, with `interrupt`, SIGINT set the flag. They stay
 * blocked in the calling thread and in all threads that it starts, so call this before any other
 * thread exists. Further calls block them in the calling thread, and do nothing else. */
int notice_take(bool interrupt, struct err *err);

/* Sets the flag as one of these does. May be called by a signal handler. */
void notice_record(int signal);

/* The first that came; 0: none. */
int notice_signal(void);

/* A descriptor that is readable (poll, select, epoll) once a notice has come; -1 before
 * notice_take. Don't read or close it. */
int notice_fd(void);

/* "SIGTERM", "SIGUSR1", …, "the time limit", "the end of the launcher on its node", "a spot
 * notice"; "a signal" for any other. */
const char *notice_name(int signal);

#endif
