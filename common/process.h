/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is not our child and may have ended long ago, identified by its PID and its start
 * time, which tells it from a later process with the same PID. */
#ifndef MUSTER_PROCESS_H
#define MUSTER_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/* A value. */
struct process {
	pid_t pid;
	unsigned long long start; /* clock ticks since boot */
};

/* Fills in `process`. False if there is no such process, or only a zombie. */
bool process_find(pid_t pid, struct process *process);

/* 0: there is no such process. */
pid_t process_parent(pid_t pid);

/* Whether that same process still runs. */
bool process_runs(const struct process *process);

/* Waits until it has ended. False if it still runs after `seconds`. */
bool process_wait(const struct process *process, double seconds);

/* Sends it a signal, and never to another process that has its PID now. */
void process_signal(const struct process *process, int signal);

/* The same with SIGKILL. Does not wait until it is gone. */
void process_kill(const struct process *process);

#endif
