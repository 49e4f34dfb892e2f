/* SPDX-License-Identifier: Apache-2.0 */
/* One block: who can run, who goes on, and the barrier of all its threads. */
#include "config.h"

#include "tests/shim/block.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "tests/shim/fiber.h"
#include "tests/shim/ptx.h"
#include "tests/shim/warp.h"

#define WORDS (FIBERS_MOST / 64)

struct shim_triple threadIdx, blockIdx, blockDim, gridDim;

struct thread {
	struct fiber *fiber;   /* NULL: not begun */
	const char *waits_for; /* NULL: it can run, or has left */
};

static struct block {
	unsigned int threads, left, running;
	enum block_order order;
	uint64_t random;
	void (*body)(void *);
	void *arg;
	struct thread thread[FIBERS_MOST];
	uint64_t can_run[WORDS];         /* a bit a thread */
	struct fiber *idle[FIBERS_MOST]; /* fibers that wait for a thread to run */
	unsigned int idle_count, fiber_count;
	bool failed;
} block;

static struct barrier {
	unsigned int waiting, generation;
	enum block_barrier kind;
	int folded[4], result; /* by enum block_barrier */
	uint64_t token[2]; /* of a generation: who is early at the next one must not order who is late
						  at this */
} barrier;

static const char *const barrier_names[] = { "__syncthreads()", "__syncthreads_or()",
	"__syncthreads_and()", "__syncthreads_count()" };
static char fault[600];
static uint64_t begin_token,
	end_token; /* the caller's work before the threads', and theirs before what follows */

UNWATCHED unsigned int block_thread(void)
{
	return block.running;
}
UNWATCHED unsigned int block_threads(void)
{
	return block.threads;
}
UNWATCHED const char *block_fault_text(void)
{
	return fault;
}

UNWATCHED static uint64_t draw(void)
{
	/* xorshift64*: any bits do, as long as the seed repeats them. */
	block.random ^= block.random >> 12;
	block.random ^= block.random << 25;
	block.random ^= block.random >> 27;
	return block.random * UINT64_C(0x2545F4914F6CDD1D);
}

UNWATCHED int block_coin(void)
{
	return block.order == BLOCK_RANDOM ? (int)(draw() >> 63) : block.order == BLOCK_DESCENDING;
}

UNWATCHED static void set_can_run(unsigned int thread)
{
	block.can_run[thread / 64] |= UINT64_C(1) << thread % 64;
}

/* The lowest thread of those from `first` on that can run, or FIBERS_MOST. */
UNWATCHED static unsigned int lowest_from(unsigned int first)
{
	uint64_t word = block.can_run[first / 64] & ~UINT64_C(0) << first % 64;
	for (unsigned int i = first / 64;; word = block.can_run[i]) {
		if (word)
			return i * 64 + (unsigned int)__builtin_ctzll(word);
		if (++i == WORDS)
			return FIBERS_MOST;
	}
}

UNWATCHED static unsigned int highest(void)
{
	for (unsigned int i = WORDS; i-- > 0;)
		if (block.can_run[i])
			return i * 64 + 63 - (unsigned int)__builtin_clzll(block.can_run[i]);
	return FIBERS_MOST;
}

/* The thread that goes on next, which is then no longer among those that can; FIBERS_MOST where
 * none can. */
UNWATCHED static unsigned int take_next(void)
{
	unsigned int next = FIBERS_MOST;
	if (block.order == BLOCK_DESCENDING)
		next = highest();
	else if (block.order == BLOCK_RANDOM)
		next = lowest_from((unsigned int)((draw() >> 32) * block.threads >> 32));
	if (next == FIBERS_MOST)
		next = lowest_from(0);
	if (next < FIBERS_MOST)
		block.can_run[next / 64] &= ~(UINT64_C(1) << next % 64);
	return next;
}

UNWATCHED static void enter(unsigned int thread)
{
	block.running = thread;
	if (blockDim.x == block.threads) {
		threadIdx.x = thread;
		threadIdx.y = threadIdx.z = 0;
		return;
	}
	threadIdx.x = thread % blockDim.x;
	threadIdx.y = thread / blockDim.x % blockDim.y;
	threadIdx.z = thread / blockDim.x / blockDim.y;
}

UNWATCHED static void back_to_caller(struct fiber *from)
{
	if (from != fiber_host())
		fiber_switch(from, fiber_host());
}

/* Writes the fault's text; the threads are dropped as they stand. */
UNWATCHED static void fail(const char *format, va_list list)
{
	int length =
		snprintf(fault, sizeof fault, "block (%u, %u, %u)", blockIdx.x, blockIdx.y, blockIdx.z);
	vsnprintf(fault + length, sizeof fault - (size_t)length, format, list);
	block.failed = true;
}

__attribute__((format(printf, 1, 2))) UNWATCHED static void fail_as_block(const char *format, ...)
{
	va_list list;
	va_start(list, format);
	fail(format, list);
	va_end(list);
}

UNWATCHED void block_fault(const char *format, ...)
{
	char text[500];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	fail_as_block(", thread (%u, %u, %u): %s", threadIdx.x, threadIdx.y, threadIdx.z, text);
	back_to_caller(block.thread[block.running].fiber);
	__builtin_unreachable();
}

/* Nobody can run, and not all have left. */
UNWATCHED static void fail_of_deadlock(void)
{
	char text[400];
	int length = 0;
	unsigned int shown = 0;
	for (unsigned int t = 0; t < block.threads && shown < 4; t++)
		if (block.thread[t].waits_for)
			length += snprintf(text + length, sizeof text - (size_t)length, "%s thread %u at %s",
				shown++ ? "," : "", t, block.thread[t].waits_for);
	fail_as_block(": deadlock: %u of %u threads wait for each other:%s", block.threads - block.left,
		block.threads, text);
}

static void work(void);

/* Goes on with another thread, from a thread that waits or (`done`) has left. Returns in a fiber
 * that is to run block.running: for one that waits that is itself. */
UNWATCHED static void go_on(struct fiber *own, bool done)
{
	unsigned int next = take_next();
	if (done)
		block.idle[block.idle_count++] = own;
	if (next == FIBERS_MOST || block.failed) {
		if (block.left < block.threads && !block.failed)
			fail_of_deadlock();
		back_to_caller(own); /* comes back, if ever, in another block: as an idle fiber */
		return;
	}
	struct thread *thread = &block.thread[next];
	enter(next);
	if (!thread->fiber) /* on the stack that was used last: that of the one who has left */
		thread->fiber =
			block.idle_count ? block.idle[--block.idle_count] : fiber_at(block.fiber_count++, work);
	if (!thread->fiber) {
		fail_as_block(": couldn't map a stack for thread %u", next);
		back_to_caller(own);
		return;
	}
	if (thread->fiber != own)
		fiber_switch(own, thread->fiber);
}

/* What each fiber does: thread after thread. */
UNWATCHED static void work(void)
{
	for (;;) {
		struct fiber *own = block.thread[block.running].fiber;
		fiber_acquire(&begin_token);
		block.body(block.arg);
		fiber_release(&end_token);
		block.left++;
		warp_left(block.running);
		if (barrier.waiting)
			block_fault("leaves the kernel, but %u threads of its block wait at %s",
				barrier.waiting, barrier_names[barrier.kind]);
		go_on(own, true);
	}
}

UNWATCHED void block_sleep(const char *what)
{
	struct thread *thread = &block.thread[block.running];
	thread->waits_for = what;
	go_on(thread->fiber, false);
	thread->waits_for = NULL;
}

UNWATCHED void block_wake(unsigned int thread)
{
	set_can_run(thread);
}

UNWATCHED static void start_barrier(enum block_barrier kind)
{
	barrier.kind = kind;
	barrier.folded[BARRIER_SYNC] = barrier.folded[BARRIER_OR] = barrier.folded[BARRIER_COUNT] = 0;
	barrier.folded[BARRIER_AND] = 1;
}

UNWATCHED int block_wait(enum block_barrier kind, int predicate)
{
	uint64_t *token = &barrier.token[barrier.generation % 2];
	if (!barrier.waiting)
		start_barrier(kind);
	if (kind != barrier.kind)
		block_fault("comes to %s, but %u threads of its block wait at %s", barrier_names[kind],
			barrier.waiting, barrier_names[barrier.kind]);
	if (block.left)
		block_fault("comes to %s, but %u threads of its block have left the kernel",
			barrier_names[kind], block.left);
	fiber_release(token);
	barrier.folded[BARRIER_OR] |= predicate != 0;
	barrier.folded[BARRIER_AND] &= predicate != 0;
	barrier.folded[BARRIER_COUNT] += predicate != 0;
	if (++barrier.waiting == block.threads) {
		barrier.waiting = 0;
		barrier.generation++;
		barrier.result = barrier.folded[kind];
		for (unsigned int t = 0; t < block.threads; t++)
			block_wake(t);
	}
	block_sleep(barrier_names[kind]);
	fiber_acquire(token);
	return barrier.result; /* the next one's is not there before this thread has come to it */
}

UNWATCHED static void reset(unsigned int threads, enum block_order order, uint64_t seed)
{
	block.threads = threads;
	block.left = block.idle_count = block.fiber_count = 0;
	block.order = order;
	block.random = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	block.failed = false;
	barrier.waiting = 0;
	for (unsigned int t = 0; t < threads; t++) {
		/* One that a thread of the kernel makes would come after what that thread did, for the
		 * thread sanitizer. */
		block.thread[t].fiber = FIBER_EACH_THREAD ? fiber_at(t, work) : NULL;
		block.thread[t].waits_for = NULL;
		set_can_run(t);
	}
	warps_reset(threads);
	ptx_reset();
}

UNWATCHED int block_run(unsigned int threads, enum block_order order, uint64_t seed,
	void (*body)(void *), void *arg)
{
	reset(threads, order, seed);
	block.body = body;
	block.arg = arg;
	fiber_release(&begin_token);
	go_on(fiber_host(), false);
	if (!block.failed)
		return 0;
	for (unsigned int i = 0; i < WORDS; i++)
		block.can_run[i] = 0;
	fibers_forget();
	blocks_end();
	return -1;
}

UNWATCHED void blocks_end(void)
{
	fiber_acquire(&end_token);
}
