/* SPDX-License-Identifier: Apache-2.0 */
/* thread: those that we start in a program take no signals, and the program's mask stays. */
#include "config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/thread.h"

static const int faults[] = { SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP };
#define FAULTS (sizeof faults / sizeof faults[0])

static sigset_t mask_now(void)
{
	sigset_t mask;
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
	return mask;
}

static bool is_fault(int signal)
{
	for (size_t i = 0; i < FAULTS; i++)
		if (faults[i] == signal)
			return true;
	return false;
}

/* glibc keeps two real-time signals, and nobody blocks KILL and STOP. */
static bool can_be_blocked(int signal)
{
	return signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN);
}

static void assert_same_mask(const sigset_t *mask, const sigset_t *other)
{
	for (int signal = 1; signal <= SIGRTMAX; signal++)
		assert_int_equal(sigismember(mask, signal), sigismember(other, signal));
}

/* What a thread found, and that it has ended where nobody joins it. */
struct found {
	sigset_t mask;
	int done[2];
};

static void *look(void *arg)
{
	struct found *found = arg;
	pthread_sigmask(SIG_SETMASK, NULL, &found->mask);
	return write(found->done[1], "", 1) == 1 ? found : NULL;
}

static void assert_takes_none(const struct found *found)
{
	for (int signal = 1; signal <= SIGRTMAX; signal++)
		if (can_be_blocked(signal) && sigismember(&found->mask, signal) == is_fault(signal))
			fail_msg("signal %d is %s", signal, is_fault(signal) ? "blocked" : "open");
}

static void a_thread_takes_no_signal_and_its_starter_keeps_his_mask(void **state)
{
	struct found found;
	sigset_t before, own;
	void *result;
	pthread_t thread;
	assert_int_equal(pipe(found.done), 0);
	sigemptyset(&own);
	sigaddset(&own, SIGUSR2);
	sigaddset(&own, SIGSEGV); /* which the program has blocked itself: it stays so */
	pthread_sigmask(SIG_SETMASK, &own, &before);
	own = mask_now();
	assert_int_equal(thread_start(&thread, look, &found), 0);
	sigset_t after = mask_now();
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_same_mask(&after, &own);
	assert_true(sigismember(&found.mask, SIGSEGV));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	assert_int_equal(thread_start(NULL, look, &found), 0);
	char bytes[2];
	assert_int_equal(read(found.done[0], bytes, 1), 1);
	assert_int_equal(read(found.done[0], bytes, 1), 1);
	assert_takes_none(&found);
	close(found.done[0]);
	close(found.done[1]);
}

static void threads_of_a_foreign_library_take_none_either(void **state)
{
	struct found found;
	pthread_t thread;
	sigset_t before, start = mask_now();
	assert_int_equal(pipe(found.done), 0);
	thread_block_signals(&before);
	assert_int_equal(pthread_create(&thread, NULL, look, &found), 0);
	thread_restore_signals(&before);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_takes_none(&found);
	sigset_t after = mask_now();
	assert_same_mask(&after, &start);
	close(found.done[0]);
	close(found.done[1]);
}

/* What the linker puts in pthread_create's place. */
static bool refuse;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
	void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
	void *(*body)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
	void *(*body)(void *), void *arg)
{
	return refuse ? EAGAIN : __real_pthread_create(thread, attributes, body, arg);
}

static void a_thread_that_can_not_be_is_told(void **state)
{
	pthread_t thread;
	sigset_t before = mask_now();
	refuse = true;
	int joined = thread_start(&thread, look, NULL), left = thread_start(NULL, look, NULL);
	refuse = false;
	sigset_t after = mask_now();
	assert_int_equal(joined, EAGAIN);
	assert_int_equal(left, EAGAIN);
	assert_same_mask(&after, &before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_takes_no_signal_and_its_starter_keeps_his_mask),
		cmocka_unit_test(threads_of_a_foreign_library_take_none_either),
		cmocka_unit_test(a_thread_that_can_not_be_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
