/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours in a program whose signals are its own: they take none, so that a handler, a
 * sigwait and an interrupted call are where the program expects them. Only what a fault of the
 * thread itself raises (SIGSEGV, SIGBUS …) stays as it is. */
#ifndef MUSTER_THREAD_H
#define MUSTER_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts `body` with signals blocked; the caller's mask is unchanged. `thread` is to be joined;
 * NULL: nobody joins it. Returns 0, or the error number, as pthread_create does. */
int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);

/* For threads that a foreign library starts: those that are begun between the two have signals
 * blocked, and so has the caller meanwhile. `before` takes his mask and gives it back. */
void thread_block_signals(sigset_t *before);
void thread_restore_signals(const sigset_t *before);

#endif
