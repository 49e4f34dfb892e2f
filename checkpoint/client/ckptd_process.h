/* SPDX-License-Identifier: Apache-2.0 */
/* A service's process, held so that its number can't come to mean another one. */
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
	bool child; /* of this process, not waited for yet */
	bool ended;
	bool unseen; /* in a pid namespace that can't be seen from here: it counts as alive */
	int status;  /* waitpid's, of a child that has ended */
};

/* `pid` runs while this is called: a child, or the other side of a connection that is open; 0: one
 * that is unseen. */
void ckptd_process_open(struct ckptd_process *process, pid_t pid, bool child);
void ckptd_process_close(struct ckptd_process *process);

bool ckptd_process_alive(struct ckptd_process *process);

/* Kills it and waits until it is gone; false when it is not by the deadline (it hangs in the
 * kernel, or is unseen). */
bool ckptd_process_kill(struct ckptd_process *process, struct deadline deadline);

/* Waits until it is gone by itself. */
bool ckptd_process_wait(struct ckptd_process *process, struct deadline deadline);

/* "was killed by signal 9", "ended with status 1"; returns `out`. */
char *ckptd_process_fate(struct ckptd_process *process, char *out, size_t size);

#endif
