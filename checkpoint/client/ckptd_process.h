/* SPDX-License-Identifier: Apache-2.0 */
/* A service's process, held so that its pid can't come to mean another process. */
#ifndef MUSTER_CKPTD_PROCESS_H
#define MUSTER_CKPTD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/clock.h"

/* A value. */
struct ckptd_process {
	pid_t pid;  /* 0: none */
	int fd;     /* pidfd, -1 before Linux 5.3 */
	bool child; /* a child of this process that has not been waited for */
	bool ended;
	bool unseen; /* it is in a pid namespace that can't be seen from here: it counts as alive */
	int status;  /* from waitpid, of a child that has ended */
};

/* `pid` must be running during the call: it is a child, or the peer of an open connection. 0: an
 * unseen one. */
void ckptd_process_open(struct ckptd_process *process, pid_t pid, bool child);
void ckptd_process_close(struct ckptd_process *process);

bool ckptd_process_alive(struct ckptd_process *process);

/* Kills it and waits until it is gone; false when it still exists at the deadline (it hangs in the
 * kernel, or is unseen). */
bool ckptd_process_kill(struct ckptd_process *process, struct deadline deadline);

/* Waits until it ends by itself; false at the deadline. */
bool ckptd_process_wait(struct ckptd_process *process, struct deadline deadline);

/* Describes how it ended: "was killed by signal 9", "ended with status 1". Returns `out`. */
char *ckptd_process_fate(struct ckptd_process *process, char *out, size_t size);

#endif
