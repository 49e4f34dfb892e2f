/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a command from time to time whether the job still exists, so that a service whose job is
 * gone ends even if nothing else ends it. */
#ifndef MUSTER_CKPTD_ALIVE_H
#define MUSTER_CKPTD_ALIVE_H

#include <stdbool.h>
#include <sys/types.h>

#include "checkpoint/protocol/ckptd_polls.h"

/* A value; all but the first two members begin as zero. */
struct ckptd_alive {
	const char *command; /* program and arguments, separated by spaces; NULL: don't ask */
	double every;        /* seconds between runs of the command */
	pid_t pid;           /* the running command's; 0: none */
	double next, until;  /* clock_now() of the next run; of the end of this one */
};

void ckptd_alive_poll(struct ckptd_alive *alive, struct ckptd_polls *polls);

/* Starts the command when it is due (`ask`: there is no client and nothing to do) and looks after a
 * running one. True when it exited with status 1: the job is gone. A command that can't be run, or
 * does not end, counts as no answer. */
bool ckptd_alive_step(struct ckptd_alive *alive, bool ask);

#endif
