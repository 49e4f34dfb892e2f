/* SPDX-License-Identifier: Apache-2.0 */
/* A fiber is a stack that code runs on until it switches to another one, all within one thread of
 * the system: what a thread of a kernel is on the host. Switches are announced to the address and
 * the thread sanitizer; to the latter as none that synchronises, so that what two fibers do is
 * ordered only by what the kernel orders. */
#ifndef MUSTER_SHIM_FIBER_H
#define MUSTER_SHIM_FIBER_H

#include <stdbool.h>
#include <stddef.h>

#define FIBERS_MOST 1024 /* threads of a block */

/* The thread sanitizer knows a fiber by its stack: there every thread of a block has a stack of its
 * own. */
#ifdef __SANITIZE_THREAD__
#define FIBER_EACH_THREAD true
/* What the shim itself does between fibers is no business of the kernel's: every function of the
 * shim has this. */
#define UNWATCHED __attribute__((no_sanitize_thread))
#else
#define FIBER_EACH_THREAD false
#define UNWATCHED
#endif

struct fiber;

/* Fiber `index` of FIBERS_MOST, ready to call `entry`, which never returns, at the first switch to
 * it. Its stack has a page below it that faults. NULL when out of memory. A fiber that has begun
 * stays as it is until fibers_forget(). */
struct fiber *fiber_at(unsigned int index, void (*entry)(void));

/* The stack that the caller of a kernel is on. */
struct fiber *fiber_host(void);

/* Leaves `from`, which is running, and goes on in `to`. Returns when something switches back to
 * `from`. */
void fiber_switch(struct fiber *from, struct fiber *to);

/* All fibers but the host's, which calls it, begin anew: what stood on their stacks is dropped. */
void fibers_forget(void);

/* Says that what came before fiber_release(token) anywhere comes before what follows
 * fiber_acquire(token) here. */
void fiber_release(void *token);
void fiber_acquire(void *token);

#endif
