/* SPDX-License-Identifier: Apache-2.0 */
/* device_snapshot over a runtime whose streams are late: who forgets a wait hands over mixed bytes,
 * and that is seen; what can't be pinned, what fails and what never ends; shards; and what a
 * snapshot costs. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#ifdef HAVE_CUBLAS
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "tests/fakes/fake_runtime.h"
#include "tests/unit/trainer/state/device_training.h"
#include "trainer/state/device_snapshot.h"

#define ROWS 40
#define STEP 2 /* whose state is taken */

struct test {
	struct device_training t;
	struct layout layout;
	struct device_snapshot *snapshot_copy;
	struct err err; /* of device_snapshot_finish */
	float *step;    /* the state after STEP */
};

static int set_up(void **state)
{
	fake_cublas = (struct fake_cublas) { 0 };
	fake_runtime_reset();
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(fake_runtime.used, 0);
	assert_int_equal(fake_runtime.registered, 0);
	assert_int_equal(fake_runtime.streams, 0);
	assert_int_equal(fake_runtime.events, 0);
	fake_runtime_reset();
	return 0;
}

/* Up to STEP; from there on, or from the first step on, streams are late. */
static void begin_late(struct test *test, int buffers, enum fake_order order, uint64_t seed)
{
	*test = (struct test) { .step = device_training_at(ROWS, GEMM_MODE_FP32, STEP) };
	device_training_begin(&test->t, ROWS, GEMM_MODE_FP32);
	assert_int_equal(layout_make(&test->layout, &test->t.table, 0, 1, NULL, 0, &test->err), 0);
	test->snapshot_copy = device_snapshot_start(&test->t.state, &test->layout, buffers, &test->err);
	if (!test->snapshot_copy)
		fail_msg("%s", test->err.text);
	fake_stream_order(order, seed);
	while (test->t.state.step < STEP)
		device_training_step(&test->t);
}

static void begin(struct test *test, int buffers)
{
	begin_late(test, buffers, FAKE_EAGER, 0);
}

/* The device does what it was given. */
static void catch_up(struct test *test)
{
	float element;
	test->t.ops->device->copy_out(test->t.ops->device, &element, test->t.state.on_device.m,
		sizeof element);
}

static void end(struct test *test)
{
	device_snapshot_stop(test->snapshot_copy);
	layout_clear(&test->layout);
	device_training_end(&test->t);
	free(test->step);
}

static size_t differs(struct test *test, int buffer)
{
	return device_training_differs(&test->layout,
		device_snapshot_memory(test->snapshot_copy)->base[buffer], test->step);
}

/* A snapshot followed by two updates, and then the wait for its copies. Returns how much of it
 * is not of its step. */
static size_t in_passing(enum fake_order order, uint64_t seed, bool deaf)
{
	struct test test;
	begin_late(&test, 1, order, seed);
	fake_runtime.deaf = deaf;
	fake_runtime.unready = order == FAKE_EAGER ? 0 : 1; /* the update finds that copies run */
	int waits = fake_runtime.waits, awaits = fake_runtime.awaits;
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	device_training_step(&test.t);
	device_training_step(&test.t);
	assert_int_equal(fake_runtime.waits, waits); /* of the host */
	assert_int_equal(fake_runtime.awaits, awaits + (order == FAKE_EAGER ? 1 : 2));
	if (seed % 2)
		catch_up(&test);
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), 0);
	size_t mixed = differs(&test, 0);
	fake_runtime.deaf = false;
	end(&test);
	return mixed;
}

static void the_update_waits_for_the_copies(void **state)
{
	assert_int_equal(in_passing(FAKE_EAGER, 0, false), 0);
	assert_int_equal(in_passing(FAKE_LAZY, 0, false), 0);
	assert_int_equal(in_passing(FAKE_LAZY, 1, false), 0);
	for (uint64_t seed = 1; seed <= 20; seed++)
		assert_int_equal(in_passing(FAKE_RANDOM, seed, false), 0);
}

/* The fault that the one above would not survive. */
static void a_missing_wait_is_seen(void **state)
{
	assert_true(in_passing(FAKE_LAZY, 1, true) > 0); /* the copies come after the update */
	assert_true(in_passing(FAKE_LAZY, 2, true)
		> 0); /* the copies are before the state that they are to copy */
}

static void *finish(void *arg)
{
	struct test *test = arg;
	device_snapshot_finish(test->snapshot_copy, 20, &test->err);
	return NULL;
}

/* Refused at the first piece, or when some are pinned. */
static void what_cannot_be_pinned_goes_through_a_ring(void **state)
{
	for (int before = 0; before < 2; before++) {
		struct test test;
		pthread_t thread;
		fake_runtime.registers_fail = cudaErrorMemoryAllocation;
		fake_runtime.registers_left = before;
		begin(&test, 2);
		assert_false(device_snapshot_is_pinned(test.snapshot_copy));
		assert_int_equal(fake_runtime.registered, 0);
		fake_stream_order(FAKE_LAZY, 0);
		assert_int_equal(device_snapshot_begin(test.snapshot_copy, 1, &test.err), 0);
		assert_int_equal(pthread_create(&thread, NULL, finish, &test), 0);
		device_training_step(&test.t);
		device_training_step(&test.t);
		pthread_join(thread, NULL);
		assert_string_equal(test.err.text, "");
		assert_int_equal(differs(&test, 1), 0);
		end(&test);
	}
}

/* At their call: the snapshot fails and training goes on. */
static void copies_that_are_refused_fail_the_snapshot_alone(void **state)
{
	struct test test;
	begin(&test, 1);
	fake_runtime.copies_fail = cudaErrorLaunchFailure;
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), -1);
	assert_non_null(strstr(test.err.text, "couldn't run cudaMemcpyAsync("));
	assert_non_null(
		strstr(test.err.text, "(cudaErrorLaunchFailure, trainer/cuda/host/copy_stream.c:"));
	fake_runtime.copies_fail = 0;
	assert_int_equal(device_check(test.t.ops->device, &test.err), 0);
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	device_training_step(&test.t);
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), 0);
	assert_int_equal(differs(&test, 0), 0);
	end(&test);
}

/* When it is their turn: the device is lost. */
static void copies_that_fail_later_fail_the_snapshot(void **state)
{
	struct test test;
	begin(&test, 1);
	fake_stream_order(FAKE_LAZY, 0);
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	fake_runtime.copies_fail_late = cudaErrorLaunchFailure;
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), -1);
	assert_non_null(strstr(test.err.text, "cudaErrorLaunchFailure"));
	fake_runtime.copies_fail_late = 0;
	end(&test);
}

/* The update can't be made to wait: whatever came of the copies, they are not handed over. */
static void an_update_that_cannot_wait_fails_the_snapshot(void **state)
{
	struct test test;
	begin(&test, 1);
	fake_stream_order(FAKE_LAZY, 0);
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	fake_runtime.waits_fail = cudaErrorInvalidValue;
	device_training_step(&test.t);
	fake_runtime.waits_fail = 0;
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), -1);
	assert_non_null(strstr(test.err.text, "couldn't run cudaStreamWaitEvent("));
	end(&test);
}

static void copies_that_never_end_are_given_up(void **state)
{
	struct test test;
	begin(&test, 1);
	fake_runtime.unready = 1000000;
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 0.02, &test.err), -1);
	assert_int_equal(test.err.status, EXIT_LOST);
	assert_non_null(strstr(test.err.text, "don't come to an end"));
	fake_runtime.unready = 0;
	end(&test);
}

/* The device stands still as long as copies run when the update wants to write, and not at all when
 * they are done by then. */
static void the_stall_is_measured(void **state)
{
	struct test test;
	begin(&test, 2);
	fake_stream_order(FAKE_LAZY, 0);
	fake_runtime.copy_time = 20;
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 0, &test.err), 0);
	fake_runtime.unready = 1; /* the update finds that they run */
	device_training_step(&test.t);
	catch_up(&test);
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), 0);
	assert_true(device_snapshot_stall(test.snapshot_copy, 0) >= 0.06
		&& device_snapshot_seconds(test.snapshot_copy, 0) >= 0.06); /* three arenas */
	assert_int_equal(device_snapshot_begin(test.snapshot_copy, 1, &test.err), 0);
	assert_int_equal(device_snapshot_finish(test.snapshot_copy, 20, &test.err), 0);
	fake_runtime.copy_time = 0;
	device_training_step(&test.t);
	assert_true(device_snapshot_stall(test.snapshot_copy, 1) < 0.02
		&& device_snapshot_seconds(test.snapshot_copy, 1) >= 0.06);
	end(&test);
}

/* Of moments only what is kept here is copied, pinned and there. */
static void shards_are_copied_alone(void **state)
{
	struct device_training whole, t;
	struct layout layout;
	struct err err = { 0 };
	struct stat st;
	device_training_begin(&whole, 20000, GEMM_MODE_FP32);
	size_t elements = whole.table.elements, first = elements / 4 / 256 * 256,
		   end = elements / 2 / 256 * 256 + 256;
	const struct zero_shard own[] = { { 1, 256, 512 }, { 1, first, end } };
	const struct zero_shard shards[] = { { 0, 0, 256 }, { 0, 512, first }, own[0], own[1],
		{ 2, end, elements } };
	device_training_make(&t, 20000, GEMM_MODE_FP32, own, 2);
	device_training_upload(&t);
	assert_int_equal(layout_make(&layout, &t.table, 1, 3, shards, 5, &err), 0);
	struct device_snapshot *snapshot_copy = device_snapshot_start(&t.state, &layout, 1, &err);
	assert_non_null(snapshot_copy);
	device_training_step(&t);
	device_training_step(&whole);
	fake_stream_order(FAKE_LAZY, 0);
	assert_int_equal(device_snapshot_begin(snapshot_copy, 0, &err), 0);
	device_training_step(&t);
	assert_int_equal(device_snapshot_finish(snapshot_copy, 20, &err), 0);
	float *arenas = device_state_read(&whole.state),
		  *buffer = device_snapshot_memory(snapshot_copy)->base[0];
	for (size_t s = 1; s < SNAPSHOT_STATES; s++)
		for (int i = 0; i < 2; i++)
			assert_memory_equal(buffer + s * elements + own[i].first,
				arenas + s * elements + own[i].first, (own[i].end - own[i].first) * sizeof *buffer);
	assert_memory_equal(buffer + first, arenas + first,
		(end - first) * sizeof *buffer); /* weights, of its own shards */
	size_t saved = layout_own_bytes(&layout),
		   runs = layout.kept_count[0] + layout.kept_count[1] + layout.kept_count[2];
	assert_int_equal(fstat(device_snapshot_memory(snapshot_copy)->fd[0], &st), 0);
	assert_true(fake_runtime.registered >= saved && fake_runtime.registered <= saved + runs * 8192);
	assert_true((size_t)st.st_blocks * 512 <= saved + runs * 8192);
	assert_true(saved < layout_bytes(&layout) * 3 / 4);
	free(arenas);
	device_snapshot_stop(snapshot_copy);
	layout_clear(&layout);
	device_training_end(&t);
	device_training_end(&whole);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		TEST(the_update_waits_for_the_copies),
		TEST(a_missing_wait_is_seen),
		TEST(what_cannot_be_pinned_goes_through_a_ring),
		TEST(copies_that_are_refused_fail_the_snapshot_alone),
		TEST(copies_that_fail_later_fail_the_snapshot),
		TEST(an_update_that_cannot_wait_fails_the_snapshot),
		TEST(copies_that_never_end_are_given_up),
		TEST(the_stall_is_measured),
		TEST(shards_are_copied_alone),
#undef TEST
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include "tests/unit/skip_main.h"

SKIP_MAIN("this build has no cuBLASLt")
#endif
