/* SPDX-License-Identifier: Apache-2.0 */
/* copier: when it says so everything is copied, however the thread and its helpers share the work, and nothing is copied
 * afterwards. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "trainer/copier.h"

#define PIECES 60
#define BYTES 5000

struct job {
	char from[PIECES * BYTES], to[PIECES * BYTES];
	struct copier_piece pieces[PIECES];
};

static struct job *make(void)
{
	struct job *job = calloc(1, sizeof *job);
	for (size_t i = 0; i < PIECES; i++)
		job->pieces[i] = (struct copier_piece){ job->from + i * BYTES, job->to + i * BYTES, BYTES };
	return job;
}

static void sleep_some(unsigned microseconds)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)microseconds * 1000 }, NULL);
}

static void all_is_copied_and_nothing_later(void **state)
{
	struct err err;
	struct copier *copier = copier_start(&err);
	struct job *job = make();
	assert_non_null(copier);
	for (unsigned round = 1; round <= 500; round++) {
		size_t count = 1 + round * 7 % PIECES;
		memset(job->from, (int)round, sizeof job->from);
		copier_begin(copier, job->pieces, count);
		sleep_some(round % 5 * 50);
		copier_finish(copier);
		memset(job->from, 0xee, sizeof job->from); /* a late copy would bring this */
		for (size_t i = 0; i < count * BYTES; i++)
			assert_int_equal(job->to[i], (char)round);
	}
	copier_finish(copier);
	copier_stop(copier);
	for (size_t i = 0; i < sizeof job->to; i++)
		assert_int_not_equal(job->to[i], (char)0xee);
	free(job);
}

static void *wait_for_copy(void *arg)
{
	copier_wait(arg);
	return NULL;
}

/* The thread does it alone, if nobody helps, and who waits hears of it. */
static void the_thread_needs_no_help(void **state)
{
	struct err err;
	struct copier *copier = copier_start(&err);
	struct job *job = make();
	for (int round = 1; round <= 50; round++) {
		pthread_t waiter;
		memset(job->from, round, sizeof job->from);
		copier_begin(copier, job->pieces, PIECES);
		assert_int_equal(pthread_create(&waiter, NULL, wait_for_copy, copier), 0);
		pthread_join(waiter, NULL);
		assert_memory_equal(job->from, job->to, sizeof job->to);
	}
	copier_stop(copier);
	free(job);
}

/* One begin behind the other: the first is finished before the second. */
static void copies_keep_their_order(void **state)
{
	struct err err;
	struct copier *copier = copier_start(&err);
	struct job *first = make(), *second = make();
	memset(first->from, 1, sizeof first->from);
	memset(second->from, 2, sizeof second->from);
	for (size_t i = 0; i < PIECES; i++)
		second->pieces[i].to = first->to + i * BYTES;
	copier_begin(copier, first->pieces, PIECES);
	copier_begin(copier, second->pieces, PIECES);
	copier_stop(copier); /* finishes, too */
	for (size_t i = 0; i < sizeof first->to; i++)
		assert_int_equal(first->to[i], 2);
	free(first);
	free(second);
}

static void pages_are_made(void **state)
{
	struct err err;
	struct copier *copier = copier_start(&err);
	char *memory = aligned_alloc(4096, 1 << 20);
	struct copier_piece pieces[4];
	memset(memory, 0, 1 << 20);
	for (size_t i = 0; i < 4; i++)
		pieces[i] = (struct copier_piece){ .to = memory + i * (1 << 18), .bytes = 1 << 18 };
	copier_begin(copier, pieces, 4);
	copier_finish(copier);
	for (size_t i = 0; i < 1 << 20; i++)
		assert_int_equal(memory[i], 0);
	copier_stop(copier);
	copier_stop(NULL);
	free(memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_copied_and_nothing_later),
		cmocka_unit_test(the_thread_needs_no_help),
		cmocka_unit_test(copies_keep_their_order),
		cmocka_unit_test(pages_are_made),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
