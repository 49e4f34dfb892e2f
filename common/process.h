/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is nobody's child here and may have ended long ago: its pid, and the start time
 * that tells it from a later process of the same pid. */
#ifndef MUSTER_PROCESS_H
#define MUSTER_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A value. */
struct process {
	pid_t pid;
	unsigned long long start; /* in clock ticks since boot */
};

/* Fills in the start time. False when there is no such process, or only its corpse. */
bool process_find(pid_t pid, struct process *process);

/* Whether that very process still runs. */
bool process_runs(const struct process *process);

/* Waits until it has ended. False when it still runs after `seconds`. */
bool process_wait(const struct process *process, double seconds);

/* Kills it, and nothing that has taken its pid; it may take a while to be gone. */
void process_kill(const struct process *process);

#endif
