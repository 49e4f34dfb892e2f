/* SPDX-License-Identifier: Apache-2.0 */
/* Now and then a command is asked whether the job is still there. */
#ifndef MUSTER_CKPTD_ALIVE_H
#define MUSTER_CKPTD_ALIVE_H

#include <stdbool.h>
#include <sys/types.h>

#include "checkpoint/protocol/ckptd_polls.h"

/* A value; zeroed but for the first two members. */
struct ckptd_alive {
	const char *command; /* for /bin/sh; NULL: nobody is asked */
	double every;        /* seconds */
	pid_t pid;           /* of the one that runs; 0: none */
	double next, until;  /* clock_now(): the next one, the end of this one */
};

void ckptd_alive_poll(struct ckptd_alive *alive, struct ckptd_polls *polls);

/* Starts the command when it is time (`ask`: there is no client and nothing to do) and looks after
 * the one that runs. True when it has said, by status 1, that the job is gone. One that can't be
 * run, or does not end, says nothing. */
bool ckptd_alive_step(struct ckptd_alive *alive, bool ask);

#endif
