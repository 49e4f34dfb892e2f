/* SPDX-License-Identifier: Apache-2.0 */
/* Our threads in a program that handles its own signals: they take none, so that handlers, sigwait
 * and interrupted calls happen in the threads where the program expects them. Only signals that a
 * fault of the thread itself raises (SIGSEGV, SIGBUS …) are not blocked. */
#ifndef MUSTER_THREAD_H
#define MUSTER_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts `body` with signals blocked; the caller's mask is unchanged. The caller joins `thread`;
 * NULL: it is detached. Returns 0, or an error number, as pthread_create does. */
int thread_start(pthread_t *thread, void *(*body)(void *arg), void *arg);

/* For threads that a foreign library starts: threads started between these two calls have signals
 * blocked, and so has the caller. `before` keeps the caller's mask. */
void thread_block_signals(sigset_t *before);
void thread_restore_signals(const sigset_t *before);

#endif
