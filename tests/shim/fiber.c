/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks from one mapping, and the switch between them. */
#include "config.h"

#include "tests/shim/fiber.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#if defined __x86_64__ && !defined SHIM_UCONTEXT
#define OWN_SWITCH
#else
#include <ucontext.h>
#endif

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define STACK_BYTES ((size_t)256 << 10)
#else
#define STACK_BYTES ((size_t)64 << 10)
#endif
/* The tops of the stacks would all lie in the same few lines of the first cache. */
#define COLOURS 16
#define COLOUR_BYTES 192

struct fiber {
	void *pointer;      /* of the stack, while it is left */
	const void *bottom; /* of what the stack may use, and its size */
	size_t bytes;
	void (*entry)(void); /* NULL: not begun */
	void *fake;          /* the address sanitizer's and the thread sanitizer's own */
	void *watcher;
#ifndef OWN_SWITCH
	ucontext_t context;
#endif
};

static struct fiber host, fibers[FIBERS_MOST];
static struct fiber *left; /* by the newest switch */
static char *stacks;
static void (*beginning)(void); /* the entry of the fiber that is switched to for the first time */

#ifdef OWN_SWITCH
/* swapcontext() asks the kernel for the signal mask at every switch: 200 ns for a thread to wait at
 * a barrier instead of 15. This keeps what the calling convention wants kept. SHIM_UCONTEXT builds
 * the other one here, too. */
void shim_swap(void **from, void *to);
__asm__(".text\n"
		".globl shim_swap\n"
		".hidden shim_swap\n"
		".type shim_swap, @function\n"
		"shim_swap:\n"
		"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq "
		"%r15\n"
		"	movq %rsp, (%rdi)\n"
		"	movq %rsi, %rsp\n"
		"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbx\n	popq %rbp\n"
		"	ret\n"
		".size shim_swap, . - shim_swap\n");
#define SAVED 6 /* registers */
#endif

/* Tells the address sanitizer which stack it is on now. */
UNWATCHED static void arrived(struct fiber *here)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(here->fake, &left->bottom, &left->bytes);
#else
	(void)here;
#endif
}

/* The first function on every stack. */
UNWATCHED static void begin(void)
{
	static struct fiber nothing;
	arrived(&nothing);
	beginning();
}

UNWATCHED static void prepare(struct fiber *fiber, unsigned int index, void (*entry)(void))
{
	fiber->entry = entry;
#ifdef __SANITIZE_ADDRESS__
	/* What a dropped frame poisoned. */
	__asan_unpoison_memory_region(fiber->bottom, fiber->bytes);
#endif
	size_t colour = index % COLOURS * COLOUR_BYTES;
#ifdef OWN_SWITCH
	/* begin() finds its stack as a call would leave it: 8 bytes, which hold no way back, above a
	 * multiple of 16. */
	void **top = (void **)((uintptr_t)fiber->bottom + fiber->bytes - colour);
	top[-1] = NULL;
	top[-2] = (void *)(uintptr_t)begin;
	for (int i = 0; i < SAVED; i++)
		top[-3 - i] = NULL;
	fiber->pointer = &top[-2 - SAVED];
#else
	getcontext(&fiber->context);
	fiber->context.uc_stack.ss_sp = (void *)(uintptr_t)fiber->bottom;
	fiber->context.uc_stack.ss_size = fiber->bytes - colour;
	fiber->context.uc_link = NULL;
	makecontext(&fiber->context, begin, 0);
#endif
}

UNWATCHED struct fiber *fiber_at(unsigned int index, void (*entry)(void))
{
	struct fiber *fiber = &fibers[index];
	static size_t page, each;
	if (!stacks) {
		page = (size_t)sysconf(_SC_PAGESIZE);
		each = STACK_BYTES + page;
		void *mapping = mmap(NULL, each * FIBERS_MOST, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
		if (mapping == MAP_FAILED)
			return NULL;
		stacks = mapping;
	}
	if (!fiber->bottom) {
		if (mprotect(stacks + index * each, page, PROT_NONE))
			return NULL;
		fiber->bottom = stacks + index * each + page;
		fiber->bytes = STACK_BYTES;
#ifdef __SANITIZE_THREAD__
		fiber->watcher = __tsan_create_fiber(0);
#endif
	}
	if (!fiber->entry)
		prepare(fiber, index, entry);
	return fiber;
}

UNWATCHED struct fiber *fiber_host(void)
{
	return &host;
}

UNWATCHED void fiber_switch(struct fiber *from, struct fiber *to)
{
	left = from;
	beginning = to->entry;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
#endif
#ifdef __SANITIZE_THREAD__
	from->watcher = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(to->watcher, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef OWN_SWITCH
	shim_swap(&from->pointer, to->pointer);
#else
	swapcontext(&from->context, &to->context);
#endif
	arrived(from);
}

UNWATCHED void fibers_forget(void)
{
	for (unsigned int i = 0; i < FIBERS_MOST; i++) {
		fibers[i].entry = NULL;
#ifdef __SANITIZE_THREAD__
		/* What it did comes before what follows here: it can say so no more. */
		if (fibers[i].watcher) {
			__tsan_switch_to_fiber(fibers[i].watcher, __tsan_switch_to_fiber_no_sync);
			__tsan_switch_to_fiber(host.watcher, 0);
		}
#endif
	}
}

UNWATCHED void fiber_release(void *token)
{
#ifdef __SANITIZE_THREAD__
	__tsan_release(token);
#else
	(void)token;
#endif
}

UNWATCHED void fiber_acquire(void *token)
{
#ifdef __SANITIZE_THREAD__
	__tsan_acquire(token);
#else
	(void)token;
#endif
}
